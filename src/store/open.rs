//! Opens the store that a text names: a directory, or a service at another address.

use super::reference::foreign;
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
    if foreign(text).is_none() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_does_not_become_a_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        for text in [
            "accountname=a;accountkey=Kk==;endpointsuffix=core.windows.net",
            "acme.table.core.windows.net?sv=1&sig=Kk",
            "sv=1&sig=Kk",
        ] {
            let path = dir.path().join(text);
            for text in [text, path.to_str().expect("UTF-8")] {
                let Err(error) = open_store(text) else { panic!("{text} was opened") };
                assert!(!format!("{error} {error:?}").contains("Kk"), "{error}");
            }
        }
    }
}
