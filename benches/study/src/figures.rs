//! Measures figures 3 to 15, and states for each what the study found.
//!
//! Invariant: every number drawn as one of 2010 is in the text of the study. A finding that the
//! study states without a number appears only as text.

use std::cell::OnceCell;
use std::time::Duration;

use rowstone::options::Targets;

use crate::Outcome;
use crate::clients::Tally;
use crate::figure::{Figure, Grid, bars, chart, distribution, line, millis, then};
use crate::ground::{Ground, Spread, VM_THREADS};
use crate::plot::{Form, Mark, Scale, Series, exact};
use crate::saturation::{LATENCY, TARGET, press};
use crate::vms::{Service, Size, Vms};

/// Measures figures.
pub(crate) struct Figures<'g> {
    pub(crate) ground: &'g Ground,
    /// The server of client processes, if figures 3 to 9, 12 and 14 use them.
    pub(crate) service: Option<&'g Service>,
    pub(crate) is_quick: bool,
    /// How long the simulation of figure 15 runs, in time of the virtual clock.
    pub(crate) pressed: Duration,
    /// The points of figure 5, measured once, because figure 6 is derived from them.
    pub(crate) by_size: OnceCell<Curves>,
}

/// The numbers of the figures that this program measures.
pub(crate) const NUMBERS: std::ops::RangeInclusive<u32> = 3..=15;

const SIZES: [u32; 7] = [1, 2, 5, 10, 20, 50, 100];
const BATCH: u32 = 100;
const VMS: [u32; 3] = [1, 2, 4];
const RATE: (&str, Scale) = ("entities/s", Scale::Log);
const SIZE: (&str, Scale) = ("entities in a batch", Scale::Log);
const CUMULATED: (&str, Scale) = ("% of calls within", Scale::Linear);
const LATENCY_AXIS: (&str, Scale) = ("milliseconds", Scale::Log);

pub(crate) type Points = Vec<(f64, f64)>;
/// Curves with their names, at least one: one for each size of client processes, or only "here".
pub(crate) type Curves = Vec<(&'static str, Points)>;

impl Figures<'_> {
    pub(crate) fn measure(&self, number: u32) -> Outcome<Figure> {
        match number {
            3 => self.latencies(),
            4 => self.batch_latencies(),
            5 => self.latency_by_size(),
            6 => self.latency_per_entity(),
            7 => self.throughput_by_size(),
            8 => self.inserts_by_spread(),
            9 => self.gets_by_spread(),
            10 => self.batches_by_threads(),
            11 => self.gets_by_threads(),
            12 => self.batches_by_vms(12, VM_THREADS),
            13 => self.batches_by_vms(13, 2 * VM_THREADS),
            14 => self.gets_by_vms(),
            _ => self.saturation(),
        }
    }

    fn latencies(&self) -> Outcome<Figure> {
        let vm = Vms(Size::ExtraLarge, 1);
        let inserts = self.insert(vm, 1, 1, Spread::One)?;
        let gets = self.get(vm, 1, Spread::One)?;
        let times = [("GET", &gets.latencies), ("insert", &inserts.latencies)];
        let series = times.iter().map(|(name, times)| distribution(name, times)).collect();
        let mut chart = chart(LATENCY_AXIS, CUMULATED, series);
        chart.marks.push(Mark { x: 40.0, text: "2010: most GETs".to_owned() });
        chart.marks.push(Mark { x: 50.0, text: "2010: most inserts".to_owned() });
        let at = |tally: &Tally| exact(millis(tally.latencies.percentile(99.0)));
        let here = format!(
            "99 % of the GETs within {} ms, 99 % of the durable inserts within {} ms; one machine, no replicas",
            at(&gets),
            at(&inserts)
        );
        Ok(Figure {
            number: 3,
            title: "latency of single GETs and inserts",
            setup: "one extra-large VM; single entities",
            study: "most GETs below 40 ms, most inserts below 50 ms",
            here,
            charts: vec![chart],
            grid: Grid::of_times(&times),
        })
    }

    fn batch_latencies(&self) -> Outcome<Figure> {
        let vm = Vms(Size::Small, 1);
        let single = self.insert(vm, 1, 1, Spread::One)?;
        let batch = self.insert(vm, 1, BATCH, Spread::One)?;
        let times = [("batch of 100", &batch.latencies)];
        let series = vec![distribution("batch of 100", &batch.latencies)];
        let mut chart = chart(LATENCY_AXIS, CUMULATED, series);
        chart.marks.push(Mark { x: 1_200.0, text: "2010: most batches".to_owned() });
        let (one, hundred) = (single.latencies.mean(), batch.latencies.mean());
        let here = format!(
            "{} ms on average; 100 single inserts, one after the other, take {} ms, {} times as long (then: 100 × 50 ms, about 4 times)",
            exact(millis(hundred)),
            exact(millis(one * 100)),
            exact(one as f64 * 100.0 / hundred.max(1) as f64)
        );
        Ok(Figure {
            number: 4,
            title: "latency of batches of 100 inserts",
            setup: "one thread on a small VM, one partition, one batch after the other",
            study: "most batches within 1.2 s, against 100 × 50 ms one by one",
            here,
            charts: vec![chart],
            grid: Grid::of_times(&times),
        })
    }

    /// Returns the mean latency of a batch in milliseconds, by its size.
    fn batch_millis(&self) -> Outcome<&Curves> {
        if let Some(curves) = self.by_size.get() {
            return Ok(curves);
        }
        let curves = self.curves(&SIZES, |vm, size| {
            Ok(millis(self.insert(Vms(vm, 1), 1, size, Spread::One)?.latencies.mean()))
        })?;
        Ok(self.by_size.get_or_init(|| curves))
    }

    fn latency_by_size(&self) -> Outcome<Figure> {
        let curves = self.batch_millis()?;
        let here = sentences(curves, |points| {
            let (one, hundred) = (exact(first(points)), exact(last(points)));
            format!("{one} ms for one entity, {hundred} ms for 100")
        });
        let then = then("most calls within", &[(1.0, 50.0), (100.0, 1_200.0)]);
        Ok(Figure {
            number: 5,
            title: "latency of a batch by its size",
            setup: "one thread, one partition; small and extra-large VM",
            study: "latency grows with size (the points are those of figures 3 and 4)",
            here,
            ..plain(SIZE, ("ms of a batch", Scale::Log), [lines(curves), vec![then]].concat())
        })
    }

    fn latency_per_entity(&self) -> Outcome<Figure> {
        let divided = |points: &Points| -> Points {
            points.iter().map(|(size, millis)| (*size, millis / size)).collect()
        };
        let curves: Curves =
            self.batch_millis()?.iter().map(|(name, points)| (*name, divided(points))).collect();
        let here = sentences(&curves, |points| {
            let gain = |from, to| exact(at(points, from) / at(points, to));
            let (few, many) = (gain(1.0, 20.0), gain(20.0, 100.0));
            format!("20 a batch are {few} times as fast as one, 100 {many} times as fast as 20")
        });
        let then = then("most calls within", &[(1.0, 50.0), (100.0, 12.0)]);
        Ok(Figure {
            number: 6,
            title: "latency per entity by size of the batch",
            setup: "figure 5, divided by the size",
            study: "the gain levels off at about 20 a batch",
            here,
            ..plain(SIZE, ("ms an entity", Scale::Log), [lines(&curves), vec![then]].concat())
        })
    }

    fn throughput_by_size(&self) -> Outcome<Figure> {
        let curves = self.curves(&SIZES, |vm, size| {
            Ok(self.insert(Vms(vm, 1), 30, size, Spread::Many)?.per_second())
        })?;
        let here = sentences(&curves, |points| {
            let (size, most) = best(points);
            let (most, some, least) = (exact(most), exact(at(points, 20.0)), exact(first(points)));
            format!(
                "most with {size} a batch, {most}/s; {some}/s with 20, {least}/s with single inserts"
            )
        });
        let mut figure = plain(SIZE, RATE, lines(&curves));
        let mark = Mark { x: 20.0, text: "2010: about here the peak".to_owned() };
        figure.charts.iter_mut().for_each(|chart| chart.marks.push(mark.clone()));
        Ok(Figure {
            number: 7,
            title: "throughput by size of the batch",
            setup: "many partitions, 30 threads on one VM; small and extra-large",
            study: "peaks at about 20; extra-large a little above 1.5 × small",
            here,
            ..figure
        })
    }

    fn inserts_by_spread(&self) -> Outcome<Figure> {
        let run = |spread| {
            self.threads(&self.spread_threads(), |threads| {
                self.insert(vms_of(threads), threads, 1, spread)
            })
        };
        let (one, many) = (run(Spread::One)?, run(Spread::Many)?);
        let here = spread_sentence("inserts", &one, &many);
        // The study measured two and five virtual machines with 15 threads each.
        let then = then("one partition", &[(30.0, 600.0), (75.0, 1_000.0)]);
        let target = target_line(&one);
        let series = vec![line("one partition", one), line("a partition each", many), then, target];
        Ok(Figure {
            number: 8,
            title: "single inserts, one partition and many",
            setup: "extra-large VMs of 15 threads, single inserts",
            study: "one partition: about 600/s with 2 VMs, about 1,000/s with 5 and 0.0004 % throttled, 0.03 % with 10 VMs, \
                    0.2 % with 16, against a target of 500/s; many partitions keep scaling",
            here,
            ..plain(("threads", Scale::Log), RATE, series)
        })
    }

    fn gets_by_spread(&self) -> Outcome<Figure> {
        let run = |spread| {
            self.threads(&self.spread_threads(), |threads| {
                self.get(vms_of(threads), threads, spread)
            })
        };
        let (one, many) = (run(Spread::One)?, run(Spread::Many)?);
        let here = spread_sentence("GETs", &one, &many);
        let series = vec![bars("one partition", one), bars("a partition each", many)];
        Ok(Figure {
            number: 9,
            title: "GETs, one partition and many",
            setup: "as figure 8, with GETs",
            study: "many partitions above one; GETs above inserts",
            here,
            ..plain(("threads", Scale::Groups), ("entities/s", Scale::Linear), series)
        })
    }

    fn batches_by_threads(&self) -> Outcome<Figure> {
        let points = self.threads(&self.client_threads(), |threads| {
            self.ground.insert(&self.ground.table()?, threads, BATCH, Spread::Many)
        })?;
        let here = peak_sentence(&points, "threads");
        Ok(Figure {
            number: 10,
            title: "batches of 100 by threads",
            setup: "many partitions, one VM; small and extra-large",
            study: "a small VM flattens behind 15 threads, for want of processor; an extra-large one keeps rising",
            here,
            ..plain(("threads", Scale::Log), RATE, vec![line("here", points)])
        })
    }

    fn gets_by_threads(&self) -> Outcome<Figure> {
        let points = self
            .threads(&self.client_threads(), |threads| self.load_and_get(threads, Spread::Many))?;
        let here = peak_sentence(&points, "threads");
        Ok(Figure {
            number: 11,
            title: "GETs by threads",
            setup: "many partitions, one VM",
            study: "flattens at 6 threads",
            here,
            ..plain(("threads", Scale::Log), RATE, vec![line("here", points)])
        })
    }

    fn batches_by_vms(&self, number: u32, threads: u32) -> Outcome<Figure> {
        let curves = if number == 12 {
            self.curves(&VMS, |vm, vms| {
                Ok(self.insert(Vms(vm, vms), vms * threads, BATCH, Spread::Many)?.per_second())
            })?
        } else {
            let run =
                |vms| self.ground.insert(&self.ground.table()?, vms * threads, BATCH, Spread::Many);
            vec![("here", self.threads(&VMS, run)?)]
        };
        let here = sentences(&curves, |points| peak_sentence(points, "VMs"));
        let (title, setup, study) = match number {
            12 => (
                "batches of 100 by VMs",
                "many partitions, 15 threads a VM",
                "keeps scaling: the limit of figure 10 was the client; at most 17,000 entities/s",
            ),
            _ => (
                "batches of 100 by VMs of 30 threads",
                "many partitions, 30 threads a VM",
                "as figure 12",
            ),
        };
        let peak: Points = VMS.iter().map(|vms| (f64::from(*vms), 17_000.0)).collect();
        let series = curves.into_iter().map(|(name, points)| bars(name, points)).collect();
        let mut figure = plain(("VMs", Scale::Groups), ("entities/s", Scale::Linear), series);
        // Drawn as a horizontal line, because the study's text does not give the number of VMs.
        let peak = Series { form: Form::Line, ..then("the peak of figures 12 and 13", &peak) };
        figure.charts.iter_mut().for_each(|chart| chart.series.push(peak.clone()));
        Ok(Figure { number, title, setup, study, here, ..figure })
    }

    fn gets_by_vms(&self) -> Outcome<Figure> {
        let curves = self.curves(&VMS, |vm, vms| {
            Ok(self.get(Vms(vm, vms), vms * 2 * VM_THREADS, Spread::Many)?.per_second())
        })?;
        let here = sentences(&curves, |points| peak_sentence(points, "VMs"));
        let series = curves.into_iter().map(|(name, points)| bars(name, points)).collect();
        Ok(Figure {
            number: 14,
            title: "GETs by VMs",
            setup: "many partitions, 30 threads a VM; small and extra-large",
            study: "more VMs or larger ones give more",
            here,
            ..plain(("VMs", Scale::Groups), ("entities/s", Scale::Linear), series)
        })
    }

    fn saturation(&self) -> Outcome<Figure> {
        let threads = [10, 20, 30, 40, 50];
        let seed = self.ground.scope.seed;
        let pressed = threads.map(|threads| press(threads, self.pressed, seed));
        let pressed: Vec<_> = pressed.into_iter().collect::<Outcome<_>>()?;
        let free = self.threads(&threads, |threads| {
            self.ground.insert(&self.ground.table()?, threads, BATCH, Spread::One)
        })?;
        let x = ("threads", Scale::Linear);
        let points = |of: &dyn Fn(usize) -> f64| -> Points {
            (0..pressed.len()).map(|i| (f64::from(pressed[i].threads), of(i))).collect()
        };
        let accepted = line("accepted, throttled here", points(&|i| pressed[i].accepted));
        let percent = line("% throttled here", points(&|i| pressed[i].refused_percent()));
        let rates = then("accepted", &[(20.0, 2_300.0), (50.0, 2_500.0)]);
        let target = target_line(&accepted.points);
        let percents = then("% throttled", &[(25.0, 11.0), (50.0, 22.0)]);
        let free = line("without a target", free);
        let series = vec![
            accepted.clone(),
            rates.clone(),
            target.clone(),
            percent.clone(),
            percents.clone(),
        ];
        let grid = Grid::of("threads", &[series, vec![free.clone()]].concat());
        let here = format!(
            "with a target of {} entities/s, calls of {} ms as the study's, and its pause of 3 s, all by a virtual clock: {}/s accepted \
             and {} % throttled at 50 threads; without a target, by the real clock, {}/s",
            exact(TARGET.into()),
            LATENCY.as_millis(),
            exact(last(&accepted.points)),
            exact(last(&percent.points)),
            exact(last(&free.points))
        );
        let linear = Scale::Linear;
        Ok(Figure {
            number: 15,
            title: "saturation of one partition",
            setup: "batches of 100, 10 threads on each of 1 to 5 VMs, a pause of 3 s after an exception",
            study: "2,300/s with 20 threads almost unthrottled; about 11 % throttled between 20 and 30; with 50 about 2,500/s \
                    accepted and 700/s throttled, 22 %",
            here,
            charts: vec![
                chart(x, ("entities/s", linear), vec![accepted, rates, target]),
                chart(x, ("% throttled", linear), vec![percent, percents]),
                chart(x, ("entities/s", linear), vec![free]),
            ],
            grid,
        })
    }

    /// Measures once for each of `places`: by client processes of each size, or by threads.
    fn curves(
        &self,
        places: &[u32],
        figure: impl Fn(Size, u32) -> Outcome<f64>,
    ) -> Outcome<Curves> {
        let curve = |size| -> Outcome<Points> {
            places.iter().map(|x| Ok((f64::from(*x), figure(size, *x)?))).collect()
        };
        if self.service.is_none() {
            return Ok(vec![("here", curve(Size::Small)?)]);
        }
        let sizes = [("small", Size::Small), ("extra-large", Size::ExtraLarge)];
        sizes.into_iter().map(|(name, size)| Ok((name, curve(size)?))).collect()
    }

    /// Inserts by client processes, or by `threads` threads of this process without a server.
    fn insert(&self, vms: Vms, threads: u32, batch: u32, spread: Spread) -> Outcome<Tally> {
        match self.service {
            Some(service) => service.run(vms, Some(batch), spread),
            None => self.ground.insert(&self.ground.table()?, threads, batch, spread),
        }
    }

    /// As [`Self::insert`], with GETs.
    fn get(&self, vms: Vms, threads: u32, spread: Spread) -> Outcome<Tally> {
        match self.service {
            Some(service) => service.run(vms, None, spread),
            None => self.load_and_get(threads, spread),
        }
    }

    /// Measures once for each number of threads, and returns the entities per second.
    fn threads(&self, threads: &[u32], run: impl Fn(u32) -> Outcome<Tally>) -> Outcome<Points> {
        threads.iter().map(|count| Ok((f64::from(*count), run(*count)?.per_second()))).collect()
    }

    fn load_and_get(&self, threads: u32, spread: Spread) -> Outcome<Tally> {
        let table = self.ground.table()?;
        let job = self.ground.load(&table, threads, spread)?;
        self.ground.get(&table, threads, job, spread)
    }

    fn spread_threads(&self) -> Vec<u32> {
        if self.service.is_some() {
            return VMS.map(|vms| vms * Size::ExtraLarge.threads()).to_vec();
        }
        if self.is_quick { vec![1, 4, 15, 30] } else { vec![1, 2, 4, 8, 15, 30, 75, 150] }
    }

    fn client_threads(&self) -> Vec<u32> {
        if self.is_quick { vec![1, 2, 6, 15, 30] } else { vec![1, 2, 4, 6, 10, 15, 20, 30, 60] }
    }
}

/// Returns a figure with one chart and its table. Its other fields are empty.
fn plain(x: (&str, Scale), y: (&str, Scale), series: Vec<Series>) -> Figure {
    let grid = Grid::of(&format!("{} \\ {}", x.0, y.0), &series);
    let charts = vec![chart(x, y, series)];
    Figure { number: 0, title: "", setup: "", study: "", here: String::new(), charts, grid }
}

/// Returns the target of 2010 for one partition, as a horizontal line over `points`.
fn target_line(points: &Points) -> Series {
    let target = f64::from(Targets::y2010().partition_entities_per_second);
    let points: Points = points.iter().map(|(x, _)| (*x, target)).collect();
    Series { form: Form::Line, ..then("the target of a partition", &points) }
}

/// Returns the extra-large client processes that have `threads` threads together.
fn vms_of(threads: u32) -> Vms {
    Vms(Size::ExtraLarge, threads / Size::ExtraLarge.threads())
}

fn lines(curves: &Curves) -> Vec<Series> {
    curves.iter().map(|(name, points)| line(name, points.clone())).collect()
}

/// Joins the sentences about several curves, each after its name.
fn sentences(curves: &Curves, sentence: impl Fn(&Points) -> String) -> String {
    if let [(_, points)] = &curves[..] {
        return sentence(points);
    }
    let named: Vec<_> =
        curves.iter().map(|(name, points)| format!("{name}: {}", sentence(points))).collect();
    named.join(". ")
}

/// Returns the point with the largest y.
fn best(points: &Points) -> (f64, f64) {
    points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0.0, 0.0))
}

fn at(points: &Points, x: f64) -> f64 {
    points.iter().find(|(at, _)| *at == x).map_or(f64::NAN, |(_, y)| *y)
}

fn first(points: &Points) -> f64 {
    points.first().map_or(f64::NAN, |(_, y)| *y)
}

fn last(points: &Points) -> f64 {
    points.last().map_or(f64::NAN, |(_, y)| *y)
}

fn spread_sentence(what: &str, one: &Points, many: &Points) -> String {
    let threads = one.last().map_or(0.0, |(x, _)| *x);
    format!(
        "with {threads} threads {} {what}/s in one partition and {}/s in many, {} times as many; nothing is throttled",
        exact(last(one)),
        exact(last(many)),
        exact(last(many) / last(one))
    )
}

fn peak_sentence(points: &Points, what: &str) -> String {
    let (x, most) = best(points);
    let (least, most) = (exact(first(points)), exact(most));
    format!("from {least}/s to {}/s; the most, {most}/s, at {x} {what}", exact(last(points)))
}
