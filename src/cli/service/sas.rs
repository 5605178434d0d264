//! `sas`: makes shared access signatures, which grant some operations for some time without a key.
//!
//! `rest::protocol::sas` defines the format of tokens and their signature.

use std::env;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Args;

use super::accounts::read_accounts;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::print;
use crate::clock::{Clock, SystemClock};
use crate::model::DateTime;
use crate::rest::accounts::AccountConfig;
use crate::rest::protocol::headers::Version;
use crate::rest::protocol::sas::{AccountSas, KeyBounds, ServiceSas, Terms, is_ordered};
use crate::rest::protocol::sign::{AccountKey, DEVELOPMENT_ACCOUNT};
use crate::rest::protocol::time;

/// The environment variable for the key. An argument would be visible in the list of processes.
const KEY_VARIABLE: &str = "ROWSTONE_ACCOUNT_KEY";
/// The letters of permissions on an account; this server ignores some of them.
const ACCOUNT_LETTERS: &str = "rwdlacuptfxyi";
/// The default version of tokens.
const DEFAULT_VERSION: &str = "2019-02-02";

/// Make a shared access signature.
///
/// It is for entities of one table, or with --account-wide for an account.
#[derive(Args)]
#[command(after_long_help = SAS_HELP)]
pub(in crate::cli) struct Sas {
    /// The table; any case
    #[arg(required_unless_present = "account_wide", conflicts_with = "account_wide")]
    table: Option<String>,
    /// Grant access to the account, not to one table
    #[arg(long)]
    account_wide: bool,
    /// The account's name
    #[arg(long, default_value = DEVELOPMENT_ACCOUNT)]
    account: String,
    /// The server's file of accounts [default: the public key of the development account, or the
    /// key in ROWSTONE_ACCOUNT_KEY]
    #[arg(long, value_name = "FILE")]
    accounts: Option<PathBuf>,
    /// Letters, in this order: r query, a insert, u update, d delete; for an account also l list, c
    /// create, w write
    #[arg(long, value_name = "LETTERS")]
    permissions: Option<String>,
    /// End of validity: 2030-01-01 or 2030-01-01T10:00:00Z
    #[arg(long, value_name = "TIME")]
    expiry: Option<String>,
    /// Start of validity
    #[arg(long, value_name = "TIME")]
    start: Option<String>,
    /// A stored access policy of the table, which supplies the fields not given here
    #[arg(long, value_name = "ID", conflicts_with = "account_wide")]
    policy: Option<String>,
    /// The first partition that the token covers
    #[arg(long, value_name = "KEY", conflicts_with = "account_wide")]
    start_partition: Option<String>,
    /// The first row that the token covers in the first partition
    #[arg(long, value_name = "KEY", requires = "start_partition", hide_short_help = true)]
    start_row: Option<String>,
    /// The last partition that the token covers
    #[arg(long, value_name = "KEY", conflicts_with = "account_wide")]
    end_partition: Option<String>,
    /// The last row that the token covers in the last partition
    #[arg(long, value_name = "KEY", requires = "end_partition", hide_short_help = true)]
    end_row: Option<String>,
    /// An IPv4 address, or two with a dash between them
    #[arg(long, value_name = "ADDRESS")]
    addresses: Option<String>,
    /// https, or https,http
    #[arg(long, value_name = "LIST", value_parser = ["https", "https,http"])]
    protocols: Option<String>,
    /// With --account-wide, letters: s service, c tables, o entities
    #[arg(long, value_name = "LETTERS", default_value = "sco", requires = "account_wide")]
    resource_types: String,
}

const SAS_HELP: &str = "\
The token is the query string of an address: the part after the question mark.

Examples:
  rowstone sas parts --permissions r --expiry 2030-01-01
  rowstone sas parts --permissions raud --expiry 2030-01-01T12:00:00Z \\
      --start-partition bolts --end-partition nuts
  rowstone sas --account-wide --permissions rwdlacu --expiry 2030-01-01 \\
      --account acme --accounts accounts.json";

impl Sas {
    pub(super) fn run(self) -> Outcome {
        self.check().map_err(Failure::Usage)?;
        let key = self.key()?;
        let terms = Terms {
            version: Version::known(DEFAULT_VERSION),
            permissions: self.permissions,
            start: self.start,
            expiry: self.expiry,
            addresses: self.addresses,
            protocols: self.protocols,
            signature: String::new(),
        };
        let token = match self.table {
            Some(table) => {
                let bounds = KeyBounds {
                    start_partition: self.start_partition,
                    start_row: self.start_row,
                    end_partition: self.end_partition,
                    end_row: self.end_row,
                };
                let sas = ServiceSas { terms, table, policy: self.policy, bounds };
                sas.sign(&self.account, &key).token()
            }
            None => {
                let sas = AccountSas {
                    terms,
                    services: "t".to_owned(),
                    resource_types: self.resource_types,
                    encryption_scope: None,
                };
                sas.sign(&self.account, &key).token()
            }
        };
        print(|output| writeln!(output, "{token}"))
    }

    /// Refuses values that a server would reject, or would interpret in another way than intended.
    fn check(&self) -> Result<(), String> {
        for (name, value) in [
            ("--policy", &self.policy),
            ("--start-partition", &self.start_partition),
            ("--start-row", &self.start_row),
            ("--end-partition", &self.end_partition),
            ("--end-row", &self.end_row),
        ] {
            if value.as_deref() == Some("") {
                return Err(format!("{name} is empty, which means nothing: leave it out"));
            }
        }
        let [start, expiry] =
            [&self.start, &self.expiry].map(|time| time.as_deref().map(read_time));
        let (start, expiry) = (start.transpose()?, expiry.transpose()?);
        let now = DateTime::from_ticks(SystemClock::new().now()).unwrap_or(DateTime::MAX);
        if let Some(expiry) = expiry
            && expiry <= start.map_or(now, |start| start.max(now))
        {
            return Err("--expiry is over, or before --start".to_owned());
        }
        if self.policy.is_none() && (expiry.is_none() || self.permissions.is_none()) {
            let needed =
                "--expiry and --permissions are needed, unless a stored --policy says them";
            return Err(needed.to_owned());
        }
        if let Some(letters) = &self.permissions {
            match self.account_wide {
                false if letters.is_empty() || !is_ordered(letters) => {
                    return Err(format!("'{letters}' is not letters of raud, in this order"));
                }
                true if !is_of(letters, ACCOUNT_LETTERS) => {
                    return Err(format!("'{letters}' is not letters of {ACCOUNT_LETTERS}"));
                }
                _ => {}
            }
        }
        if !is_of(&self.resource_types, "sco") {
            return Err(format!("'{}' is not letters of sco", self.resource_types));
        }
        match self.addresses.as_deref() {
            Some(addresses) if !is_range(addresses) => Err(format!(
                "'{addresses}' is not an IPv4 address, or two with a dash between them"
            )),
            _ => Ok(()),
        }
    }

    fn key(&self) -> Outcome<AccountKey> {
        if let Some(path) = &self.accounts {
            let account =
                read_accounts(path)?.into_iter().find(|account| account.name == self.account);
            let account = account.ok_or_else(|| {
                Failure::Usage(format!("{} has no account '{}'", path.display(), self.account))
            })?;
            return first_key(account);
        }
        if let Ok(text) = env::var(KEY_VARIABLE) {
            let key = AccountKey::read(&text);
            return key.ok_or_else(|| Failure::Usage(format!("{KEY_VARIABLE} is not Base64")));
        }
        if self.account != DEVELOPMENT_ACCOUNT {
            return Err(Failure::Usage(format!(
                "the key of '{}' is needed: --accounts FILE, or the variable {KEY_VARIABLE}",
                self.account
            )));
        }
        first_key(AccountConfig::development())
    }
}

fn read_time(text: &str) -> Result<DateTime, String> {
    let time = time::read_iso(text);
    time.ok_or_else(|| format!("'{text}' is not a time such as 2030-01-01T10:00:00Z"))
}

/// Whether `letters` is not empty, and all its letters are in `known` and occur once.
fn is_of(letters: &str, known: &str) -> bool {
    let is_first = |(i, letter)| known.contains(letter) && letters.find(letter) == Some(i);
    !letters.is_empty() && letters.char_indices().all(is_first)
}

fn is_range(addresses: &str) -> bool {
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    match (first.trim().parse::<Ipv4Addr>(), last.trim().parse::<Ipv4Addr>()) {
        (Ok(first), Ok(last)) => first <= last,
        _ => false,
    }
}

fn first_key(account: AccountConfig) -> Outcome<AccountKey> {
    let missing = || Failure::Usage(format!("account '{}' has no key", account.name));
    account.keys.into_iter().next().ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    fn check(arguments: &str) -> Result<(), String> {
        let command = Sas::augment_args(Command::new("sas"));
        let given = ["sas"].into_iter().chain(arguments.split(' '));
        let given = given.map(|text| if text == "''" { "" } else { text });
        Sas::from_arg_matches(&command.get_matches_from(given)).unwrap().check()
    }

    #[test]
    fn tokens_that_can_work_are_made() {
        for arguments in [
            "people --permissions raud --expiry 2100-01-01",
            "people --permissions rd --expiry 2100-01-01 --start 2099-12-31 --addresses 10.0.0.1-10.0.0.9",
            "people --policy p",
            "people --permissions r --expiry 2100-01-01 --start-partition a --start-row b --end-partition c",
            "--account-wide --permissions rwdlacu --expiry 2100-01-01 --resource-types co",
            "--account-wide --permissions lr --expiry 2100-01-01 --addresses 10.0.0.1",
        ] {
            assert_eq!(check(arguments), Ok(()), "{arguments}");
        }
    }

    #[test]
    fn tokens_that_cannot_work_are_not_made() {
        for (arguments, problem) in [
            ("people --permissions r", "are needed"),
            ("people --permissions dr --expiry 2100-01-01", "in this order"),
            ("people --permissions xyz --expiry 2100-01-01", "raud"),
            ("people --permissions rr --expiry 2100-01-01", "raud"),
            ("people --permissions '' --expiry 2100-01-01", "raud"),
            ("people --permissions r --expiry 2001-01-01", "is over"),
            ("people --permissions r --expiry 2100-01-01 --start 2100-01-01", "before --start"),
            ("people --permissions r --expiry soon", "not a time"),
            ("people --permissions r --expiry 2100-01-01 --addresses foo", "IPv4"),
            ("people --permissions r --expiry 2100-01-01 --addresses 10.0.0.9-10.0.0.1", "IPv4"),
            (
                "people --permissions r --expiry 2100-01-01 --end-partition ''",
                "--end-partition is empty",
            ),
            (
                "people --permissions r --expiry 2100-01-01 --end-partition a --end-row ''",
                "--end-row is empty",
            ),
            ("people --policy ''", "--policy is empty"),
            ("--account-wide --permissions k --expiry 2100-01-01", "not letters of rwdlacu"),
            ("--account-wide --permissions r --expiry 2100-01-01 --resource-types zz", "sco"),
        ] {
            let told = check(arguments).unwrap_err();
            assert!(told.contains(problem), "{arguments}: {told}");
        }
    }
}
