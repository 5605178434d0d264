//! The accounts of a server: the name, the keys and the database of each.
//!
//! Each account has its own database. Keys can be replaced while requests are answered; a request
//! sees either the old keys or the new ones.
//!
//! Invariants
//! * errors in a configuration are reported without its keys;
//! * an account that is removed from the configuration has no keys, so no client has access.
//!
//! `auth` verifies keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::db::Db;
use crate::error::Code;
use crate::json::{self, Scalar};
use crate::rest::protocol::fault::Fault;
use crate::rest::protocol::settings::{Policy, Properties, read_policies};
use crate::rest::protocol::sign::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use crate::sync::{ArcSwap, AtomicBool, Mutex, Ordering};

use super::feed::Readers;

/// An account of a running server.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) db: Db,
    /// Locked while the settings are changed, because a change first reads them and then writes
    /// them.
    pub(super) settings: Mutex<()>,
    /// The path of the database as configured when the server started.
    database: Option<PathBuf>,
    keys: ArcSwap<Vec<AccountKey>>,
    /// A cache of the service properties, which every request needs: the text from which they were
    /// parsed, and the parsed form.
    pub(super) properties: Mutex<Option<(Arc<str>, Arc<Properties>)>>,
    is_public: AtomicBool,
    pub(super) readers: Arc<Readers>,
}

/// An account in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountConfig {
    pub(crate) name: String,
    pub(crate) keys: Vec<AccountKey>,
    /// `None` means the database named on the command line.
    pub(crate) database: Option<PathBuf>,
}

/// All accounts of a server.
#[derive(Debug)]
pub(crate) struct Accounts {
    by_name: BTreeMap<String, Arc<Account>>,
}

/// The differences, apart from keys, between the running server and a configuration that is read
/// again. To apply them, the server must be restarted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rotated {
    /// Accounts that did not exist at the start.
    pub(crate) came: Vec<String>,
    /// Accounts that were removed and can no longer be used.
    pub(crate) gone: Vec<String>,
    /// Accounts whose database was changed.
    pub(crate) moved: Vec<String>,
}

/// The name of the note (a named text in the catalog) that stores the access policies of a table.
pub(super) const POLICIES: &str = "policies";
/// The maximum number of keys of an account. All keys are valid, so that one can be replaced while
/// clients use another.
const KEYS_MAX: usize = 2;
const ACCOUNTS_MAX: usize = 10_000;

impl Account {
    /// Returns the stored access policies of a table.
    ///
    /// # Errors
    /// `TableNotFound`.
    pub(super) fn policies(&self, table: &str) -> Result<Vec<Policy>, Fault> {
        match self.db.catalog.note(Some(table), POLICIES)? {
            Some(text) => read_policies(&text).map_err(|_| unreadable(POLICIES)),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the keys, in the order in which they are tried.
    pub(crate) fn keys(&self) -> Arc<Vec<AccountKey>> {
        self.keys.load_full()
    }

    /// True if a key of the account is publicly known.
    pub(super) fn is_public(&self) -> bool {
        self.is_public.load(Ordering::Relaxed)
    }
}

/// Returns the error for a stored note that this server wrote but cannot parse.
pub(super) fn unreadable(note: &str) -> Fault {
    tracing::error!(note, "a setting in the catalog cannot be read");
    Code::InternalError.into()
}

impl AccountConfig {
    /// Returns the public development account.
    pub(crate) fn development() -> Self {
        let keys = AccountKey::read(DEVELOPMENT_KEY).into_iter().collect();
        Self { name: DEVELOPMENT_ACCOUNT.to_owned(), keys, database: None }
    }

    /// True if a key of the account is publicly known.
    pub(crate) fn is_public(&self) -> bool {
        AccountKey::read(DEVELOPMENT_KEY).is_some_and(|public| self.keys.contains(&public))
    }

    /// Reads a list of accounts: `[{"name":"acme","keys":["…","…"],"database":"path"}]`.
    ///
    /// Paths are relative to `base`.
    ///
    /// # Errors
    /// The problem and the account's name, but never a key.
    pub(crate) fn read_list(text: &str, base: &Path) -> Result<Vec<Self>, String> {
        let list = json::read_array(text, ACCOUNTS_MAX + 1).map_err(|error| error.to_string())?;
        if list.len() > ACCOUNTS_MAX {
            return Err(format!("there are more than {ACCOUNTS_MAX} accounts"));
        }
        let mut accounts: Vec<Self> = Vec::with_capacity(list.len());
        for (i, account) in list.into_iter().enumerate() {
            let account = read_account(account.get(), base)
                .map_err(|problem| format!("account {}: {problem}", i + 1))?;
            if accounts.iter().any(|other| other.name == account.name) {
                return Err(format!("account '{}' is there twice", account.name));
            }
            accounts.push(account);
        }
        if accounts.is_empty() {
            return Err("there is no account".to_owned());
        }
        Ok(accounts)
    }
}

fn read_account(text: &str, base: &Path) -> Result<AccountConfig, String> {
    let (mut name, mut keys, mut database) = (None, Vec::new(), None);
    for (member, value) in json::read_object(text, 8).map_err(|error| error.to_string())? {
        let text = |value| match Scalar::read(value) {
            Ok(Scalar::String(text)) => Ok(text.into_owned()),
            _ => Err(format!("'{member}' is not a text")),
        };
        match &*member {
            "name" => name = Some(text(value)?),
            "database" => database = Some(base.join(text(value)?)),
            "keys" => {
                // Read one key more than allowed, so that longer lists are detected.
                let list = json::read_array(value.get(), KEYS_MAX + 1).ok();
                let list = list.filter(|list| list.len() <= KEYS_MAX);
                let list =
                    list.ok_or_else(|| format!("'keys' is not a list of up to {KEYS_MAX}"))?;
                for key in list {
                    let key = text(key)?;
                    keys.push(AccountKey::read(&key).ok_or("a key is not Base64, or empty")?);
                }
            }
            other => return Err(format!("'{other}' means nothing here")),
        }
    }
    let name = name.ok_or("'name' is missing")?;
    let is_name = (3..=24).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if !is_name {
        return Err(format!("'{name}' is not 3 to 24 lower-case letters and digits"));
    }
    if keys.is_empty() {
        return Err(format!("'{name}' has no keys"));
    }
    Ok(AccountConfig { name, keys, database })
}

impl Accounts {
    /// Opens the database of every account with `open`.
    ///
    /// # Errors
    /// The error of the first database that does not open.
    pub(crate) fn open<E>(
        configs: Vec<AccountConfig>,
        mut open: impl FnMut(&AccountConfig) -> Result<Db, E>,
    ) -> Result<Self, E> {
        let mut by_name = BTreeMap::new();
        for config in configs {
            let db = open(&config)?;
            let account = Account {
                name: config.name.clone(),
                db,
                settings: Mutex::new(()),
                properties: Mutex::default(),
                is_public: AtomicBool::new(config.is_public()),
                keys: ArcSwap::from_pointee(config.keys),
                database: config.database,
                readers: Arc::default(),
            };
            by_name.insert(config.name, Arc::new(account));
        }
        Ok(Self { by_name })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Account>> {
        self.by_name.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.by_name.values()
    }

    /// Replaces the keys of the accounts by those in `configs`. Accounts missing in `configs` lose
    /// their keys.
    pub(crate) fn rotate(&self, configs: Vec<AccountConfig>) -> Rotated {
        let mut rotated = Rotated::default();
        let mut gone: BTreeMap<_, _> = self.by_name.iter().collect();
        for config in configs {
            match gone.remove(&config.name) {
                Some(account) => {
                    if account.database != config.database {
                        rotated.moved.push(config.name.clone());
                    }
                    account.is_public.store(config.is_public(), Ordering::Relaxed);
                    account.keys.store(Arc::new(config.keys));
                }
                None => rotated.came.push(config.name),
            }
        }
        for (name, account) in gone {
            account.keys.store(Arc::default());
            rotated.gone.push(name.clone());
        }
        rotated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_accounts() {
        let text = r#"[{"name":"acme","keys":["YQ==","Yg=="],"database":"acme.db"},{"name":"other1","keys":["Yw=="]}]"#;
        let accounts = AccountConfig::read_list(text, Path::new("/etc")).unwrap();
        assert_eq!(accounts[0].keys, ["YQ==", "Yg=="].map(|key| AccountKey::read(key).unwrap()));
        assert_eq!(accounts[0].database.as_deref(), Some(Path::new("/etc/acme.db")));
        assert_eq!((accounts[1].name.as_str(), &accounts[1].database), ("other1", &None));
        assert!(!accounts[0].is_public() && AccountConfig::development().is_public());
    }

    #[test]
    fn errors_in_a_list_of_accounts_do_not_show_its_keys() {
        for (text, problem) in [
            ("[]", "no account"),
            (r#"[{"keys":["c2VjcmV0"]}]"#, "'name' is missing"),
            (r#"[{"name":"Acme","keys":["c2VjcmV0"]}]"#, "lower-case"),
            (r#"[{"name":"acme","keys":[]}]"#, "no keys"),
            (r#"[{"name":"acme","keys":["c2VjcmV0!"]}]"#, "not Base64"),
            (r#"[{"name":"acme","keys":["YQ==","YQ==","YQ=="]}]"#, "up to 2"),
            (r#"[{"name":"acme","kyes":["c2VjcmV0"]}]"#, "'kyes' means nothing"),
            (r#"[{"name":"acme","keys":["YQ=="]},{"name":"acme","keys":["YQ=="]}]"#, "twice"),
        ] {
            let told = AccountConfig::read_list(text, Path::new("")).unwrap_err();
            assert!(told.contains(problem), "{text}: {told}");
            assert!(!told.contains("c2VjcmV0"), "{told}");
        }
    }
}
