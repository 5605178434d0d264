//! Reads and writes the settings of an account and its tables as XML: access policies, service
//! properties, statistics.
//!
//! Invariants
//! * settings that were written read back unchanged;
//! * settings that were read are within the service's limits.
//!
//! Not here: applying CORS rules (`cors`), the rights that a policy grants (`sas`), storing
//! settings (`rest::settings`).

pub(crate) mod cors;
mod elements;

pub(crate) use cors::CorsRule;

use super::fault::Fault;
use super::xml::{self, Element};
use super::{time, xml::DECLARATION};
use crate::model::DateTime;
use elements::{boolean, document, only, required, unsupported, value};

/// A stored access policy of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) id: String,
    /// The element `AccessPolicy`, which may be absent. An empty element counts as absent.
    pub(crate) access: Option<Access>,
}

/// The rights that a stored access policy grants; each may be left to the token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) start: Option<DateTime>,
    pub(crate) expiry: Option<DateTime>,
    /// The permissions: letters of `raud`.
    pub(crate) permissions: Option<String>,
}

/// The service's properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) logging: Logging,
    pub(crate) hour_metrics: Metrics,
    pub(crate) minute_metrics: Metrics,
    pub(crate) cors: Vec<CorsRule>,
}

/// The service properties that a request sets; the absent ones stay unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    logging: Option<Logging>,
    hour_metrics: Option<Metrics>,
    minute_metrics: Option<Metrics>,
    cors: Option<Vec<CorsRule>>,
}

/// The logging settings: which requests to log, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Logging {
    pub(crate) delete: bool,
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// The number of days to keep logs; `None` means forever.
    pub(crate) days: Option<u16>,
}

/// The metrics settings: whether to collect metrics, and for how long to keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metrics {
    /// `None` if metrics are disabled; otherwise whether to collect them for each operation, too.
    pub(crate) include_apis: Option<bool>,
    /// The number of days to keep metrics; `None` means forever.
    pub(crate) days: Option<u16>,
}

/// The maximum number of policies of a table.
const POLICIES_MAX: usize = 5;
/// The maximum number of characters in a policy's id.
const POLICY_ID_MAX: usize = 64;
/// The maximum number of CORS rules of a service.
const RULES_MAX: usize = 5;
/// The longest time for which logs and metrics can be kept, in days.
const DAYS_MAX: u16 = 365;
/// The only version of the logging and metrics settings.
const ANALYTICS_VERSION: &str = "1.0";
/// The letters that a policy's permissions may contain.
const PERMISSIONS: &str = "raud";

/// Reads the policies of a table. An empty document means no policies.
///
/// # Errors
/// `InvalidXmlDocument`, `InvalidXmlNodeValue`, `MissingRequiredXmlNode`, `UnsupportedXmlNode`.
pub(crate) fn read_policies(text: &str) -> Result<Vec<Policy>, Fault> {
    let Some(root) = xml::read(text).map_err(|_| document())? else { return Ok(Vec::new()) };
    if root.name != "SignedIdentifiers" || root.children.len() > POLICIES_MAX {
        return Err(document());
    }
    let mut policies: Vec<Policy> = Vec::new();
    for element in &root.children {
        if element.name != "SignedIdentifier" {
            return Err(unsupported(element));
        }
        only(element, &["Id", "AccessPolicy"])?;
        let id = required(element, "Id")?;
        let is_long = id.text.chars().count() > POLICY_ID_MAX;
        if id.text.is_empty() || is_long || policies.iter().any(|policy| policy.id == id.text) {
            return Err(value(id));
        }
        let access = element.child("AccessPolicy").map(read_access).transpose()?;
        let access = access.filter(|access| *access != Access::default());
        policies.push(Policy { id: id.text.clone(), access });
    }
    Ok(policies)
}

fn read_access(element: &Element) -> Result<Access, Fault> {
    let mut access = Access::default();
    only(element, &["Start", "Expiry", "Permission"])?;
    let given = |name| element.child(name).filter(|element| !element.text.is_empty());
    let time = |element: &Element| time::read_iso(&element.text).ok_or_else(|| value(element));
    access.start = given("Start").map(time).transpose()?;
    access.expiry = given("Expiry").map(time).transpose()?;
    if let Some(element) = given("Permission") {
        let letters = &element.text;
        let known = |c| PERMISSIONS.contains(c) && letters.matches(c).count() == 1;
        // Checks the length first, because `known` takes time linear in the length for each letter.
        if letters.len() > PERMISSIONS.len() || !letters.chars().all(known) {
            return Err(value(element));
        }
        access.permissions = Some(letters.clone());
    }
    Ok(access)
}

/// Appends the policies of a table.
pub(crate) fn put_policies(out: &mut Vec<u8>, policies: &[Policy]) {
    out.extend_from_slice(DECLARATION.as_bytes());
    if policies.is_empty() {
        return out.extend_from_slice(b"<SignedIdentifiers />");
    }
    xml::open(out, "SignedIdentifiers");
    for Policy { id, access } in policies {
        xml::open(out, "SignedIdentifier");
        xml::put(out, "Id", id);
        if let Some(access) = access {
            access.put(out);
        }
        xml::close(out, "SignedIdentifier");
    }
    xml::close(out, "SignedIdentifiers");
}

impl Access {
    fn put(&self, out: &mut Vec<u8>) {
        xml::open(out, "AccessPolicy");
        for (name, time) in [("Start", self.start), ("Expiry", self.expiry)] {
            if let Some(time) = time {
                xml::put(out, name, &time::seven_digits(time));
            }
        }
        if let Some(permissions) = &self.permissions {
            xml::put(out, "Permission", permissions);
        }
        xml::close(out, "AccessPolicy");
    }
}

impl Properties {
    /// Returns the properties after applying `change`.
    pub(crate) fn with(self, change: Change) -> Properties {
        Properties {
            logging: change.logging.unwrap_or(self.logging),
            hour_metrics: change.hour_metrics.unwrap_or(self.hour_metrics),
            minute_metrics: change.minute_metrics.unwrap_or(self.minute_metrics),
            cors: change.cors.unwrap_or(self.cors),
        }
    }

    /// Appends the properties as XML. If `old` is true, uses the format of protocol versions before
    /// minute metrics and CORS.
    pub(crate) fn put(&self, out: &mut Vec<u8>, old: bool) {
        out.extend_from_slice(DECLARATION.as_bytes());
        xml::open(out, ROOT);
        self.logging.put(out);
        if old {
            self.hour_metrics.put(out, "Metrics");
        } else {
            self.hour_metrics.put(out, "HourMetrics");
            self.minute_metrics.put(out, "MinuteMetrics");
            xml::open(out, "Cors");
            self.cors.iter().for_each(|rule| rule.put(out));
            xml::close(out, "Cors");
        }
        xml::close(out, ROOT);
    }
}

const ROOT: &str = "StorageServiceProperties";

impl Change {
    /// Reads the service properties that a request sets.
    ///
    /// # Errors
    /// `InvalidXmlDocument`, `InvalidXmlNodeValue`, `MissingRequiredXmlNode`, `UnsupportedXmlNode`.
    pub(crate) fn read(text: &str) -> Result<Change, Fault> {
        let root = xml::read(text).ok().flatten().filter(|root| root.name == ROOT);
        let root = root.ok_or_else(document)?;
        only(&root, &["Logging", "HourMetrics", "MinuteMetrics", "Cors", "Metrics"])?;
        let metrics = |name| root.child(name).map(Metrics::read).transpose();
        let hour_metrics = match (metrics("HourMetrics")?, metrics("Metrics")?) {
            (Some(_), Some(_)) => return Err(document()),
            (hour, old) => hour.or(old),
        };
        Ok(Change {
            logging: root.child("Logging").map(Logging::read).transpose()?,
            hour_metrics,
            minute_metrics: metrics("MinuteMetrics")?,
            cors: root.child("Cors").map(read_rules).transpose()?,
        })
    }
}

fn read_rules(element: &Element) -> Result<Vec<CorsRule>, Fault> {
    if element.children.len() > RULES_MAX {
        return Err(document());
    }
    let read = |rule: &Element| match &*rule.name {
        "CorsRule" => CorsRule::read(rule),
        _ => Err(unsupported(rule)),
    };
    element.children.iter().map(read).collect()
}

impl Logging {
    fn read(element: &Element) -> Result<Logging, Fault> {
        only(element, &["Version", "Delete", "Read", "Write", "RetentionPolicy"])?;
        check_version(element)?;
        Ok(Logging {
            delete: boolean(required(element, "Delete")?)?,
            read: boolean(required(element, "Read")?)?,
            write: boolean(required(element, "Write")?)?,
            days: read_retention(element)?,
        })
    }

    fn put(self, out: &mut Vec<u8>) {
        xml::open(out, "Logging");
        xml::put(out, "Version", ANALYTICS_VERSION);
        xml::put(out, "Delete", &self.delete.to_string());
        xml::put(out, "Read", &self.read.to_string());
        xml::put(out, "Write", &self.write.to_string());
        put_retention(out, self.days);
        xml::close(out, "Logging");
    }
}

impl Metrics {
    fn read(element: &Element) -> Result<Metrics, Fault> {
        only(element, &["Version", "Enabled", "IncludeAPIs", "RetentionPolicy"])?;
        check_version(element)?;
        let enabled = boolean(required(element, "Enabled")?)?;
        let include_apis = match enabled {
            true => Some(boolean(required(element, "IncludeAPIs")?)?),
            // `IncludeAPIs` is ignored if the metrics are disabled.
            false => None,
        };
        Ok(Metrics { include_apis, days: read_retention(element)? })
    }

    fn put(self, out: &mut Vec<u8>, name: &str) {
        xml::open(out, name);
        xml::put(out, "Version", ANALYTICS_VERSION);
        xml::put(out, "Enabled", &self.include_apis.is_some().to_string());
        if let Some(include) = self.include_apis {
            xml::put(out, "IncludeAPIs", &include.to_string());
        }
        put_retention(out, self.days);
        xml::close(out, name);
    }
}

fn check_version(element: &Element) -> Result<(), Fault> {
    let version = required(element, "Version")?;
    if version.text == ANALYTICS_VERSION { Ok(()) } else { Err(value(version)) }
}

fn read_retention(element: &Element) -> Result<Option<u16>, Fault> {
    let policy = required(element, "RetentionPolicy")?;
    only(policy, &["Enabled", "Days"])?;
    if !boolean(required(policy, "Enabled")?)? {
        return Ok(None);
    }
    let days = required(policy, "Days")?;
    let number = days.text.parse().ok().filter(|number| (1..=DAYS_MAX).contains(number));
    number.map(Some).ok_or_else(|| value(days))
}

fn put_retention(out: &mut Vec<u8>, days: Option<u16>) {
    xml::open(out, "RetentionPolicy");
    xml::put(out, "Enabled", &days.is_some().to_string());
    if let Some(days) = days {
        xml::put(out, "Days", &days.to_string());
    }
    xml::close(out, "RetentionPolicy");
}

/// Appends the replication statistics as XML. They report a live secondary location that was last
/// synchronized at `last_sync`.
pub(crate) fn put_stats(out: &mut Vec<u8>, last_sync: DateTime) {
    out.extend_from_slice(DECLARATION.as_bytes());
    xml::open(out, "StorageServiceStats");
    xml::open(out, "GeoReplication");
    xml::put(out, "Status", "live");
    xml::put(out, "LastSyncTime", &time::http(last_sync));
    xml::close(out, "GeoReplication");
    xml::close(out, "StorageServiceStats");
}

#[cfg(test)]
mod tests;
