//! Opens the store that a text names: a directory, or a service at another address.

use super::reference::Reference;
#[cfg(feature = "remote")]
use super::remote::Remote;
use super::table_store::TableStore;
use crate::db::Db;
use crate::error::Result;
#[cfg(not(feature = "remote"))]
use crate::error::{Code, Error};

/// Opens the store that `text` names, so that one program runs over a directory and over a Table
/// service:
///
/// | text | store |
/// | --- | --- |
/// | `UseDevelopmentStorage=true` | the development account of Azurite or `rowstone serve` on this machine |
/// | `env:NAME` | the connection string or URL in an environment variable |
/// | `file:PATH` | the connection string or URL in a file |
/// | a connection string, or a URL with a shared access signature | the service that it names |
/// | any other text | the database in this directory, created if it is missing |
///
/// Other users of a machine see the arguments of its programs, so a key is passed by `env:` or
/// `file:`.
///
/// # Errors
/// Those of [`Db::open`] for a directory. `InvalidInput` for a malformed connection string. Without
/// the feature `remote`, `InvalidInput` for everything but a directory.
///
/// ```
/// use rowstone::store::open_store;
///
/// # fn main() -> rowstone::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let text = dir.path().to_str().unwrap();
/// let store = open_store(text)?;
/// store.create_table("parts")?;
/// # Ok(())
/// # }
/// ```
pub fn open_store(text: &str) -> Result<Box<dyn TableStore>> {
    if !is_remote(text) {
        return Ok(Box::new(Db::open(text)?));
    }
    #[cfg(feature = "remote")]
    return Ok(Box::new(Remote::open(text)?));
    #[cfg(not(feature = "remote"))]
    Err(Error::refused_with(
        Code::InvalidInput,
        "this build opens directories only: build it with the feature remote",
    ))
}

/// Whether a text names a service instead of a directory.
pub(crate) fn is_remote(text: &str) -> bool {
    let development = "UseDevelopmentStorage=";
    let start = text.trim_start().get(..development.len()).unwrap_or_default();
    // A path with one of these parts is far more often a mistake than a directory.
    let parts = ["://", "AccountName=", "TableEndpoint=", "SharedAccessSignature="];
    Reference::read(text).is_some()
        || start.eq_ignore_ascii_case(development)
        || parts.into_iter().any(|part| text.contains(part))
}
