//! The text of steps, read back: words, options, entities.

use crate::options::{Durability, IoMode};

use super::expr::Expr;
use super::query::{Query, Want};
use super::step::{
    Condition, Config, FaultAt, Mode, PLAIN, Scan, Step, Verb, Write, fault_named, lane_named,
    op_named,
};
use super::value::Val;

/// A command line taken apart: words and `name=value` options, quotes kept in values.
pub struct Command {
    /// The first word of the line.
    pub name: String,
    /// The other words in their order, unquoted.
    pub words: Vec<String>,
    options: Vec<(String, String)>,
}

impl Command {
    /// Takes a line apart.
    ///
    /// # Errors
    /// A quote that is left open.
    pub fn parse(line: &str) -> Result<Command, String> {
        let mut command = Command { name: String::new(), words: Vec::new(), options: Vec::new() };
        for (number, token) in tokens(line)?.into_iter().enumerate() {
            match token.split_once('=') {
                _ if number == 0 => command.name = token,
                Some((name, value)) if !name.contains('\'') => {
                    command.options.push((name.to_owned(), value.to_owned()));
                }
                _ => command.words.push(unquote(&token)?),
            }
        }
        Ok(command)
    }

    /// Takes the option `name`, unquoted.
    ///
    /// # Errors
    /// A quote that is left open.
    pub fn take(&mut self, name: &str) -> Result<Option<String>, String> {
        let at = self.options.iter().position(|(option, _)| option == name);
        at.map(|at| unquote(&self.options.remove(at).1)).transpose()
    }

    /// Takes the option `name` and reads its value as a number.
    ///
    /// # Errors
    /// A value that is no number, or is out of range.
    pub fn take_number<T: std::str::FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.take(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{name}={text} is no number"))
    }

    /// The only word, or the first of several.
    ///
    /// # Errors
    /// There is none: the command wants `what`.
    pub fn word(&self, what: &str) -> Result<String, String> {
        self.words.first().cloned().ok_or_else(|| format!("`{}` wants {what}", self.name))
    }

    fn second_word(&self, what: &str) -> Result<String, String> {
        self.words.get(1).cloned().ok_or_else(|| format!("`{}` wants {what}", self.name))
    }

    /// Requires that every option was taken.
    ///
    /// # Errors
    /// One that was not: the command has none of that name.
    pub fn finish(self) -> Result<(), String> {
        match self.options.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!("`{}` has no option `{name}`", self.name)),
        }
    }
}

/// The steps that a command and its input stand for; `None` if it is no step.
///
/// # Errors
/// What the command lacks, or has too much of, or what cannot be read.
pub fn steps(line: &str, input: &[&str]) -> Result<Option<Vec<Step>>, String> {
    let mut command = Command::parse(line)?;
    let step = match command.name.as_str() {
        "open" => Step::Open(config(&mut command)?),
        "create-table" => Step::CreateTable(command.word("a name")?),
        "drop-table" => Step::DropTable(command.word("a name")?),
        "drop-range" | "expire" | "gate" | "lift" | "move" => span_step(&mut command)?,
        "archive" => {
            let seed = command.take_number("seed")?.unwrap_or(0);
            Step::Archive { table: command.word("a table")?, seed }
        }
        "tables" => Step::Tables,
        "group" => group(&mut command, input)?,
        "submit" => submit(&mut command, input)?,
        "await" => Step::Await(command.word("a ticket")?),
        "poll" => Step::Poll(command.word("a ticket")?),
        "forget" => Step::Forget(command.word("a ticket")?),
        "get" => return gets(command, input).map(Some),
        "scan" => {
            let scan = scan(&mut command)?;
            Step::Scan { table: command.word("a table")?, scan }
        }
        "query" => {
            let query = query(&mut command, input)?.into();
            Step::Query { table: command.word("a table")?, query }
        }
        "pages" => {
            let query = query(&mut command, input)?.into();
            let (name, table) = (command.word("a name")?, command.second_word("a table")?);
            Step::Pages { name, table, query }
        }
        "resume" => Step::Resume(command.word("a name")?),
        "iterate" => {
            let scan = scan(&mut command)?;
            let (name, table) = (command.word("a name")?, command.second_word("a table")?);
            Step::Iterate { name, table, scan }
        }
        "next" => {
            let count = number(&command.second_word("a count")?)?;
            Step::Next { name: command.word("a name")?, count }
        }
        "snapshot" => Step::Snapshot(command.word("a name")?),
        "release" => Step::Release(command.word("a name")?),
        "background" => background(&mut command)?,
        "kill" => command.take_number("in")?.map_or(Step::Kill, Step::KillIn),
        "crash" => {
            let seed = command.take_number("seed")?.unwrap_or(0);
            let ops = command.take_number("in")?;
            ops.map_or(Step::Crash(seed), |ops| Step::CrashIn { ops, seed })
        }
        "fault" => Step::Fault(fault(&mut command)?),
        "quota" => Step::Quota(command.word("bytes or none")?.parse().ok()),
        "rot" => Step::Rot(command.take_number("seed")?.unwrap_or(0)),
        "damage" => Step::Damage(command.take_number("seed")?.unwrap_or(0)),
        "clock" => Step::Clock(number(&command.word("milliseconds")?)?),
        name => match (verb(name), PLAIN.iter().find(|(_, other)| *other == name)) {
            (Some(verb), _) => return writes(verb, command, input).map(Some),
            (None, Some((step, _))) => step.clone(),
            (None, None) => return Ok(None),
        },
    };
    command.finish()?;
    Ok(Some(vec![step]))
}

/// Steps about whole spans.
fn span_step(command: &mut Command) -> Result<Step, String> {
    Ok(match command.name.as_str() {
        "drop-range" => {
            let (scan, also) = (scan(command)?, command.take("also")?);
            Step::DropRange { table: command.word("a table")?, scan, also }
        }
        "expire" => {
            let keep = number(&command.second_word("a count")?)?;
            Step::Expire { table: command.word("a table")?, keep }
        }
        "gate" => {
            let (scan, mode) = (scan(command)?, mode(command)?);
            Step::Gate { table: command.word("a table")?, scan, mode }
        }
        "lift" => {
            let scan = scan(command)?;
            Step::Lift { table: command.word("a table")?, scan }
        }
        _ => {
            let scan = scan(command)?;
            let (snapshot, table) = (command.word("a name")?, command.second_word("a table")?);
            Step::Move { table, scan, snapshot }
        }
    })
}

fn mode(command: &mut Command) -> Result<Mode, String> {
    let name = command.take("mode")?.unwrap_or_default();
    let mode = [Mode::ReadOnly, Mode::Offline].into_iter().find(|mode| mode.name() == name);
    mode.ok_or_else(|| format!("mode={name}"))
}

fn verb(name: &str) -> Option<Verb> {
    let name = if name == "put" { "upsert" } else { name };
    Verb::ALL.into_iter().find(|verb| verb.name() == name)
}

fn writes(verb: Verb, mut command: Command, input: &[&str]) -> Result<Vec<Step>, String> {
    let table = command.word("a table")?;
    let condition = condition(&mut command)?;
    let durability = durability(&mut command)?;
    command.finish()?;
    let step = |line: &&str| {
        let (pk, rk, properties) = entity(&tokens(line)?)?;
        let write = Write { verb, pk, rk, properties, condition };
        Ok(Step::Write { table: table.clone(), write, durability })
    };
    input.iter().map(step).collect()
}

fn group(command: &mut Command, input: &[&str]) -> Result<Step, String> {
    let table = command.word("a table")?;
    let durability = durability(command)?;
    let writes = input.iter().map(|line| group_write(line)).collect::<Result<_, _>>()?;
    Ok(Step::Group { table, writes, durability })
}

/// `delete if=current pk rk`
fn group_write(line: &str) -> Result<Write, String> {
    let mut tokens = tokens(line)?;
    let name = if tokens.is_empty() { String::new() } else { tokens.remove(0) };
    let verb = verb(&name).ok_or_else(|| format!("`{line}` opens with no verb"))?;
    let condition = match tokens.first().and_then(|token| token.strip_prefix("if=")) {
        Some(text) => {
            let condition = parse_condition(text)?;
            tokens.remove(0);
            condition
        }
        None => Condition::Any,
    };
    let (pk, rk, properties) = entity(&tokens)?;
    Ok(Write { verb, pk, rk, properties, condition })
}

fn gets(mut command: Command, input: &[&str]) -> Result<Vec<Step>, String> {
    let table = command.word("a table")?;
    let select = list(&mut command, "select")?;
    let at = command.take("at")?;
    command.finish()?;
    let step = |line: &&str| {
        let (pk, rk, _) = entity(&tokens(line)?)?;
        Ok(Step::Get { table: table.clone(), pk, rk, select: select.clone(), at: at.clone() })
    };
    input.iter().map(step).collect()
}

fn scan(command: &mut Command) -> Result<Scan, String> {
    Ok(Scan {
        pk: command.take("pk")?,
        from: command.take("from")?,
        to: command.take("to")?,
        select: list(command, "select")?,
        top: command.take_number("top")?,
        page: command.take_number("page")?,
        at: command.take("at")?,
    })
}

fn query(command: &mut Command, input: &[&str]) -> Result<Query, String> {
    let want = match (command.take("want")?.as_deref(), command.take("of")?) {
        (None, None) => Want::Rows,
        (None, Some(name)) => Want::Aggregate(name),
        (Some("count"), None) => Want::Count,
        (Some("counts"), None) => Want::CountByPartition,
        (Some("explain"), None) => Want::Explain,
        (want, of) => return Err(format!("want={want:?} of={of:?}")),
    };
    Ok(Query {
        filter: input.first().map(|line| Expr::parse(line)).transpose()?,
        want,
        select: list(command, "select")?,
        top: command.take_number("top")?,
        page: command.take_number("page")?,
        reverse: command.take("reverse")?.is_some_and(|text| text == "true"),
        busy: command.take_number("busy")?,
        at: command.take("at")?,
    })
}

fn submit(command: &mut Command, input: &[&str]) -> Result<Step, String> {
    let durability = durability(command)?;
    let (ticket, table) = (command.word("a ticket")?, command.second_word("a table")?);
    let writes = input.iter().map(|line| group_write(line)).collect::<Result<_, _>>()?;
    Ok(Step::Submit { ticket, table, writes, durability })
}

fn background(command: &mut Command) -> Result<Step, String> {
    let steps = number(&command.word("a count")?)?;
    let Some(name) = command.take("lane")? else { return Ok(Step::Background(steps)) };
    let lane = lane_named(&name).ok_or_else(|| format!("`{name}` is no lane"))?;
    Ok(Step::Lane(lane, steps))
}

fn fault(command: &mut Command) -> Result<FaultAt, String> {
    let kind = command.word("a kind")?;
    let kind = fault_named(&kind).ok_or_else(|| format!("`{kind}` is no kind of fault"))?;
    let op = match command.take("op")? {
        Some(name) => Some(op_named(&name).ok_or_else(|| format!("`{name}` is no operation"))?),
        None => None,
    };
    let path = command.take("path")?;
    let nth = command.take_number("nth")?.unwrap_or(0);
    let sticky = command.take("sticky")?.is_some_and(|text| text == "true");
    Ok(FaultAt { kind, op, path, nth, sticky })
}

fn config(command: &mut Command) -> Result<Config, String> {
    let default = Config::default();
    let io_mode = match command.take("io")?.as_deref() {
        None => default.io_mode,
        Some("mmap") => IoMode::Mmap,
        Some("pread") => IoMode::Pread,
        Some(other) => return Err(format!("io={other}")),
    };
    let targets = match command.take("targets")? {
        Some(text) => {
            let (one, all) = text.split_once('/').ok_or_else(|| format!("targets={text}"))?;
            Some((number(one)?, number(all)?))
        }
        None => None,
    };
    Ok(Config {
        durability: durability(command)?.unwrap_or(default.durability),
        io_mode,
        memtable_bytes: command.take_number("memtable")?.unwrap_or(default.memtable_bytes),
        block_bytes: command.take_number("block")?.unwrap_or(default.block_bytes),
        run_file_bytes: command.take_number("run-file")?.unwrap_or(default.run_file_bytes),
        cache_bytes: command.take_number("cache")?.unwrap_or(default.cache_bytes),
        log_buffer_bytes: command.take_number("buffer")?.unwrap_or(default.log_buffer_bytes),
        manifest_roll_bytes: command.take_number("roll")?.unwrap_or(default.manifest_roll_bytes),
        compress: command.take("compress")?.is_some_and(|text| text == "true"),
        targets,
        cap: command.take_number("cap")?,
        ring: command.take("ring")?.is_some_and(|text| text == "true"),
        seed: command.take_number("seed")?.unwrap_or(default.seed),
    })
}

fn durability(command: &mut Command) -> Result<Option<Durability>, String> {
    match command.take("durability")?.as_deref() {
        None => Ok(None),
        Some("sync") => Ok(Some(Durability::Sync)),
        Some("os") => Ok(Some(Durability::Os)),
        Some("buffered") => Ok(Some(Durability::Buffered)),
        Some(other) => Err(format!("durability={other}")),
    }
}

fn condition(command: &mut Command) -> Result<Condition, String> {
    command.take("if")?.map_or(Ok(Condition::Any), |text| parse_condition(&text))
}

fn parse_condition(text: &str) -> Result<Condition, String> {
    match text {
        "*" => Ok(Condition::Any),
        "current" => Ok(Condition::Current),
        "stale" => Ok(Condition::Stale),
        _ => number(text.strip_prefix('#').unwrap_or(text)).map(Condition::Commit),
    }
}

fn list(command: &mut Command, name: &str) -> Result<Option<Vec<String>>, String> {
    let split = |text: String| text.split(',').map(str::to_owned).collect();
    Ok(command.take(name)?.map(split))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

/// `pk rk Name=value …`
type Entity = (String, String, Vec<(String, Val)>);

fn entity(tokens: &[String]) -> Result<Entity, String> {
    let [pk, rk, properties @ ..] = tokens else {
        return Err(format!("`{}` wants a PartitionKey and a RowKey", tokens.join(" ")));
    };
    let property = |token: &String| {
        let (name, value) = token.split_once('=').ok_or_else(|| format!("`{token}` wants `=`"))?;
        Ok((name.to_owned(), Val::parse(value)?))
    };
    let properties = properties.iter().map(property).collect::<Result<_, String>>()?;
    Ok((unquote(pk)?, unquote(rk)?, properties))
}

/// Words parted by spaces outside quotes; quotes stay.
fn tokens(line: &str) -> Result<Vec<String>, String> {
    let (mut tokens, mut token) = (Vec::new(), String::new());
    let mut quoted = false;
    for c in line.chars() {
        quoted ^= c == '\'';
        match c {
            ' ' if !quoted => tokens.push(std::mem::take(&mut token)),
            c => token.push(c),
        }
    }
    tokens.push(token);
    tokens.retain(|token| !token.is_empty());
    if quoted { Err(format!("a quote is open in `{line}`")) } else { Ok(tokens) }
}

fn unquote(token: &str) -> Result<String, String> {
    match token.strip_prefix('\'') {
        None => Ok(token.to_owned()),
        Some(rest) => {
            let inner = rest.strip_suffix('\'').ok_or_else(|| format!("{token} wants a quote"))?;
            Ok(inner.replace("''", "'"))
        }
    }
}

#[test]
fn steps_print_and_parse_back() {
    for text in [
        "open durability=os io=pread memtable=65536 block=512 run-file=65536 cache=0 buffer=4096 roll=512 compress=true targets=5/20 cap=4096 ring=true seed=7",
        "create-table parts",
        "upsert-merge parts durability=buffered\nbolts '' Price=0.12 Note='it''s = so'",
        "delete parts if=#3\n'a b' m4",
        "replace parts if=stale\nbolts m4",
        "group parts durability=os\ninsert bolts m4 Price=1\ndelete if=current bolts m5",
        "get parts select=A,B at=s\nbolts m4",
        "scan parts pk='' from=a to=b select=A top=3 page=2 at=s",
        "query parts",
        "query parts want=explain\nPrice lt 0.5",
        "query parts of=Price reverse=true at=s\n(Note eq 'it''s ( so' or not (A eq 5L))",
        "query parts want=counts\nA ne NaN",
        "pages p1 parts select=A,B top=3 page=2 busy=5\nPartitionKey ge ''",
        "resume p1",
        "background 3",
        "background 2 lane=compact",
        "submit t1 parts durability=os\ninsert bolts m4 Price=1\ndelete if=current bolts m5",
        "gate parts pk=bolts from=a mode=offline",
        "lift parts",
        "move s1 parts pk=bolts",
        "await t1",
        "poll t1",
        "forget t1",
        "iterate i1 parts pk=bolts select=A top=4",
        "next i1 3",
        "begin-flush",
        "end-compaction",
        "settle",
        "checkpoint",
        "backup",
        "archive parts seed=5",
        "kill in=4",
        "crash seed=9 in=12",
        "fault eio op=sync path=.wal nth=3 sticky=true",
        "quota 4096",
        "quota none",
        "mend",
        "rot seed=5",
        "damage seed=6",
        "crash seed=9",
        "clock -50",
        "verify",
    ] {
        let mut lines = text.lines();
        let (line, input) = (lines.next().unwrap(), lines.collect::<Vec<_>>());
        let steps = steps(line, &input).unwrap().unwrap();
        let printed: Vec<String> = steps.iter().map(|step| step.to_string()).collect();
        assert_eq!(printed, [text]);
    }
    assert_eq!(steps("files", &[]), Ok(None));
    assert!(steps("scan parts colour=red", &[]).is_err());
}
