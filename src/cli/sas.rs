//! `sas`: tokens that let somebody do some things for some time, without a key.
//!
//! Not here: what a token says and how it is signed (`wire::sas`).

use std::env;
use std::path::{Path, PathBuf};

use clap::Args;

use super::failure::{Failure, Outcome};
use super::files::read_text;
use super::output::Output;
use crate::rest::accounts::AccountConfig;
use crate::wire::headers::Version;
use crate::wire::sas::{AccountSas, KeyBounds, ServiceSas, Terms};
use crate::wire::sign::{AccountKey, DEVELOPMENT_ACCOUNT};
use crate::wire::time;

/// Where a key comes from that should not stand in a list of processes.
const KEY_VARIABLE: &str = "ROWSTONE_ACCOUNT_KEY";
/// What tokens are signed as unless told otherwise.
const DEFAULT_VERSION: &str = "2019-02-02";

/// Make a shared access signature: for entities of one table, or with --account-wide for an account
#[derive(Args)]
#[command(after_long_help = SAS_HELP)]
pub(super) struct Sas {
    /// The table; any case
    #[arg(required_unless_present = "account_wide", conflicts_with = "account_wide")]
    table: Option<String>,
    /// For the account, not for one table
    #[arg(long)]
    account_wide: bool,
    /// The account's name
    #[arg(long, default_value = DEVELOPMENT_ACCOUNT)]
    account: String,
    /// The file with the accounts that the server has [default: the public key of the development account, or the key in
    /// ROWSTONE_ACCOUNT_KEY]
    #[arg(long, value_name = "FILE")]
    accounts: Option<PathBuf>,
    /// Letters: r query, a insert, u update, d delete; for an account also l list, c create, w write
    #[arg(long, value_name = "LETTERS")]
    permissions: Option<String>,
    /// When it ends: 2030-01-01 or 2030-01-01T10:00:00Z
    #[arg(long, value_name = "TIME")]
    expiry: Option<String>,
    /// When it begins
    #[arg(long, value_name = "TIME")]
    start: Option<String>,
    /// A stored access policy of the table, which says what is not said here
    #[arg(long, value_name = "ID", conflicts_with = "account_wide")]
    policy: Option<String>,
    /// The first partition it is good for, and with --start-row the first row in it
    #[arg(long, value_name = "KEY", conflicts_with = "account_wide")]
    start_partition: Option<String>,
    #[arg(long, value_name = "KEY", requires = "start_partition", hide_short_help = true)]
    start_row: Option<String>,
    /// The last partition, and with --end-row the last row in it
    #[arg(long, value_name = "KEY", conflicts_with = "account_wide")]
    end_partition: Option<String>,
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
The token is what stands behind the question mark of an address.

Examples:
  rowstone sas parts --permissions r --expiry 2030-01-01
  rowstone sas parts --permissions raud --expiry 2030-01-01T12:00:00Z --start-partition bolts --end-partition nuts
  rowstone sas --account-wide --permissions rwdlacu --expiry 2030-01-01 --account acme --accounts accounts.json";

impl Sas {
    pub(super) fn run(self) -> Outcome {
        for time in [&self.expiry, &self.start].into_iter().flatten() {
            if time::read_iso(time).is_none() {
                return Err(Failure::Usage(format!(
                    "'{time}' is not a time such as 2030-01-01T10:00:00Z"
                )));
            }
        }
        if self.policy.is_none() && (self.expiry.is_none() || self.permissions.is_none()) {
            return Err(Failure::Usage(
                "--expiry and --permissions are needed, unless a stored --policy says them"
                    .to_owned(),
            ));
        }
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
        let mut output = Output::standard();
        std::io::Write::write_all(&mut output, format!("{token}\n").as_bytes())
            .map_err(Failure::output)?;
        output.finish()
    }

    fn key(&self) -> Outcome<AccountKey> {
        if let Some(path) = &self.accounts {
            let base = path.parent().unwrap_or(Path::new(""));
            let read = AccountConfig::read_list(&read_text(path)?, base);
            let accounts =
                read.map_err(|problem| Failure::Usage(format!("{}: {problem}", path.display())))?;
            let account = accounts.into_iter().find(|account| account.name == self.account);
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

fn first_key(account: AccountConfig) -> Outcome<AccountKey> {
    let missing = || Failure::Usage(format!("account '{}' has no key", account.name));
    account.keys.into_iter().next().ok_or_else(missing)
}
