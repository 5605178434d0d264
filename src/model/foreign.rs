//! Converts the times of the crates `time` and `chrono` and the UUIDs of the crate `uuid`. Each
//! crate is a feature of the same name.
//!
//! Invariants
//! * every [`DateTime`] converts to an equal time of the other crate and back;
//! * a [`Guid`] and its UUID have the same text.

use super::convert::FromValue;
#[cfg(any(feature = "time", feature = "chrono"))]
use super::convert::IntoProperty;
#[cfg(any(feature = "time", feature = "chrono"))]
use super::datetime::DateTime;
use super::shape::Field;
use super::value::{Value, ValueRef};
#[cfg(any(feature = "time", feature = "chrono"))]
use crate::error::{Error, Result};

#[cfg(feature = "chrono")]
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Reads a property of the type `$ours` as `$theirs`.
macro_rules! from_value {
    ($theirs:ty, $ours:ty) => {
        impl<'a> FromValue<'a> for $theirs {
            const EXPECTED: &'static str = <$ours as FromValue<'a>>::EXPECTED;

            fn from_value(value: ValueRef<'a>) -> Option<Self> {
                <$ours>::from_value(value).map(Self::from)
            }

            #[inline]
            fn from_field(field: Field<'_, 'a>) -> Option<Self> {
                <$ours>::from_field(field).map(Self::from)
            }
        }
    };
}

/// Implements [`IntoProperty`] for a time and for an `Option` of it.
#[cfg(any(feature = "time", feature = "chrono"))]
macro_rules! into_property {
    ($theirs:ty $(, $zone:ident)?) => {
        impl$(<$zone: chrono::TimeZone>)? IntoProperty for $theirs {
            fn into_property(self) -> Result<Option<Value>> {
                DateTime::try_from(self).map(|time| Some(Value::DateTime(time)))
            }
        }

        impl$(<$zone: chrono::TimeZone>)? IntoProperty for Option<$theirs> {
            fn into_property(self) -> Result<Option<Value>> {
                self.map_or(Ok(None), <$theirs>::into_property)
            }
        }
    };
}

#[cfg(feature = "time")]
mod with_time {
    use super::*;
    use time::OffsetDateTime;

    from_value!(OffsetDateTime, DateTime);
    into_property!(OffsetDateTime);

    impl TryFrom<OffsetDateTime> for DateTime {
        type Error = Error;

        /// Rounds down to a multiple of 100 ns.
        ///
        /// # Errors
        /// `InvalidInput` (`OutOfRangeInput`) before the year 1601 or after the year 9999.
        fn try_from(time: OffsetDateTime) -> Result<Self> {
            DateTime::from_unix_nanos(time.unix_timestamp_nanos())
        }
    }

    impl From<DateTime> for OffsetDateTime {
        /// Returns the time in UTC.
        fn from(time: DateTime) -> Self {
            let time = OffsetDateTime::from_unix_timestamp_nanos(time.unix_nanos());
            time.expect("the years 1601 to 9999 are in the range of `time`")
        }
    }
}

#[cfg(feature = "chrono")]
mod with_chrono {
    use super::*;
    use chrono::{TimeZone, Utc};

    from_value!(chrono::DateTime<Utc>, DateTime);
    into_property!(chrono::DateTime<Z>, Z);

    impl<Z: TimeZone> TryFrom<chrono::DateTime<Z>> for DateTime {
        type Error = Error;

        /// Rounds down to a multiple of 100 ns. A leap second is the first second of the next
        /// minute.
        ///
        /// # Errors
        /// `InvalidInput` (`OutOfRangeInput`) before the year 1601 or after the year 9999.
        fn try_from(time: chrono::DateTime<Z>) -> Result<Self> {
            let seconds = i128::from(time.timestamp()) * NANOS_PER_SECOND;
            DateTime::from_unix_nanos(seconds + i128::from(time.timestamp_subsec_nanos()))
        }
    }

    impl From<DateTime> for chrono::DateTime<Utc> {
        fn from(time: DateTime) -> Self {
            let nanos = time.unix_nanos();
            let seconds = nanos.div_euclid(NANOS_PER_SECOND) as i64;
            let time = Self::from_timestamp(seconds, nanos.rem_euclid(NANOS_PER_SECOND) as u32);
            time.expect("the years 1601 to 9999 are in the range of `chrono`")
        }
    }
}

#[cfg(feature = "uuid")]
mod with_uuid {
    use super::super::guid::Guid;
    use super::*;
    use uuid::Uuid;

    from_value!(Uuid, Guid);

    impl From<Uuid> for Guid {
        fn from(uuid: Uuid) -> Self {
            Guid::from_bytes(uuid.into_bytes())
        }
    }

    impl From<Guid> for Uuid {
        fn from(guid: Guid) -> Self {
            Uuid::from_bytes(*guid.as_bytes())
        }
    }

    impl From<Uuid> for Value {
        fn from(uuid: Uuid) -> Self {
            Value::Guid(uuid.into())
        }
    }
}

#[cfg(all(test, feature = "time", feature = "chrono", feature = "uuid"))]
mod tests {
    use chrono::Utc;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;
    use crate::model::{Entity, Guid, Shapes};
    use crate::rng::Rng;

    fn code<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
        result.unwrap_err().code()
    }

    #[test]
    fn times_convert_both_ways_to_the_tick() {
        let mut rng = Rng::from_seed(3);
        let random = std::iter::repeat_with(|| rng.below(DateTime::MAX.ticks() + 1)).take(10_000);
        for ticks in
            [0, 1, DateTime::MAX.ticks() - 1, DateTime::MAX.ticks()].into_iter().chain(random)
        {
            let time = DateTime::from_ticks(ticks).unwrap();
            let (a, b) = (OffsetDateTime::from(time), chrono::DateTime::<Utc>::from(time));
            assert_eq!(DateTime::try_from(a).unwrap(), time);
            assert_eq!(DateTime::try_from(b).unwrap(), time);
            assert_eq!(a.date().to_string(), time.to_string()[..10]);
            assert_eq!(b.date_naive().to_string(), time.to_string()[..10]);
        }
    }

    #[test]
    fn times_outside_of_the_range_are_refused_and_finer_ones_are_rounded_down() {
        let (low, high) =
            (OffsetDateTime::from(DateTime::MIN), OffsetDateTime::from(DateTime::MAX));
        let nanos = time::Duration::nanoseconds;
        assert_eq!(code(DateTime::try_from(low - nanos(1))), "OutOfRangeInput");
        assert_eq!(DateTime::try_from(low + nanos(99)).unwrap(), DateTime::MIN);
        assert_eq!(DateTime::try_from(high + nanos(99)).unwrap(), DateTime::MAX);
        let shifted = high.to_offset(time::UtcOffset::from_hms(-1, 0, 0).unwrap());
        assert_eq!(DateTime::try_from(shifted).unwrap(), DateTime::MAX);

        let delta = chrono::TimeDelta::nanoseconds;
        let (low, high) =
            (chrono::DateTime::<Utc>::from(DateTime::MIN), chrono::DateTime::from(DateTime::MAX));
        assert_eq!(code(DateTime::try_from(low - delta(1))), "OutOfRangeInput");
        assert_eq!(DateTime::try_from(low + delta(99)).unwrap(), DateTime::MIN);
        assert_eq!(DateTime::try_from(high + delta(99)).unwrap(), DateTime::MAX);
        assert_eq!(code(DateTime::try_from(high + delta(100))), "OutOfRangeInput");
        for beyond in [chrono::DateTime::<Utc>::MIN_UTC, chrono::DateTime::<Utc>::MAX_UTC] {
            assert_eq!(code(DateTime::try_from(beyond)), "OutOfRangeInput");
        }
        let leap = chrono::DateTime::<Utc>::from_timestamp(1_483_228_799, 1_500_000_000).unwrap();
        assert_eq!(DateTime::try_from(leap).unwrap().to_string(), "2017-01-01T00:00:00.5Z");
        let zone = chrono::FixedOffset::east_opt(3600).unwrap();
        assert_eq!(DateTime::try_from(low.with_timezone(&zone)).unwrap(), DateTime::MIN);
    }

    #[test]
    fn a_guid_and_its_uuid_have_the_same_text() {
        let uuid = Uuid::from_u128(0x00112233_4455_6677_8899_aabbccddeeff);
        assert_eq!(Guid::from(uuid).to_string(), uuid.to_string());
        assert_eq!(Guid::from(uuid).to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(Uuid::from(Guid::from(uuid)), uuid);
    }

    #[test]
    fn properties_hold_times_and_uuids_of_other_crates() {
        let time: DateTime = "2024-02-29T12:00:00.1234567Z".parse().unwrap();
        let (a, b) = (OffsetDateTime::from(time), chrono::DateTime::<Utc>::from(time));
        let uuid = Uuid::from_u128(7);
        let entity = Entity::new("p", "r").with("A", a).with("B", Some(b)).with("C", uuid);
        let entity = entity.with("D", None::<OffsetDateTime>).with("E", Some(uuid));
        assert_eq!(entity.len(), 4);
        assert_eq!(entity.get::<chrono::DateTime<Utc>>("A").unwrap(), b);
        assert_eq!(entity.get::<OffsetDateTime>("B").unwrap(), a);
        assert_eq!(entity.get::<DateTime>("B").unwrap(), time);
        assert_eq!(entity.get::<Uuid>("C").unwrap(), uuid);
        assert_eq!(entity.get::<Option<Uuid>>("D").unwrap(), None);
        let error = entity.get::<Uuid>("A").unwrap_err();
        assert_eq!(error.message(), "property 'A' is Edm.DateTime, not Edm.Guid");
    }

    #[test]
    fn an_entity_with_a_time_out_of_range_cannot_be_written() {
        let beyond = chrono::DateTime::<Utc>::MAX_UTC;
        let early = OffsetDateTime::from(DateTime::MIN) - time::Duration::seconds(1);
        let mut entity = Entity::new("p", "r").with("A", 1).with("B", 2);
        entity.set("A", Some(beyond)).set("B", early);
        for _ in 0..2 {
            let error = entity.to_row(&Shapes::new(1 << 20)).unwrap_err();
            assert_eq!(error.code(), "OutOfRangeInput");
            assert!(error.to_string().contains("property 'A'"), "{error}");
            assert_eq!(code(entity.get::<Option<DateTime>>("B")), "OutOfRangeInput");
            // A clone, and an entity with other keys, are refused too.
            entity = entity.clone().with_keys("q", "s");
        }
        entity.set("A", 3);
        let error = entity.to_row(&Shapes::new(1 << 20)).unwrap_err();
        assert!(error.to_string().contains("property 'B'"), "{error}");
        assert_eq!(entity.remove("B"), None);
        entity.to_row(&Shapes::new(1 << 20)).unwrap();
        assert_eq!(entity, Entity::new("q", "s").with("A", 3));
    }
}
