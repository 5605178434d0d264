//! Checks and reads XML elements of settings, and builds the errors for invalid ones.

use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::xml::Element;

/// Refuses an element with a child that is repeated or whose name is not in `names`.
pub(super) fn only(element: &Element, names: &[&str]) -> Result<(), Fault> {
    // If there are more children than names, one of the first `names.len() + 1` is repeated or
    // unknown. Only these are compared, because comparing all would take quadratic time.
    for (i, child) in element.children.iter().enumerate().take(names.len() + 1) {
        if !names.contains(&child.name.as_str()) {
            return Err(unsupported(child));
        }
        if element.children.iter().take(i).any(|earlier| earlier.name == child.name) {
            return Err(document());
        }
    }
    Ok(())
}

pub(super) fn required<'e>(element: &'e Element, name: &str) -> Result<&'e Element, Fault> {
    let missing = || Fault::from(Known::MissingRequiredXmlNode).with_detail("XmlNodeName", name);
    element.child(name).ok_or_else(missing)
}

pub(super) fn boolean(element: &Element) -> Result<bool, Fault> {
    element.text.to_ascii_lowercase().parse().map_err(|_| value(element))
}

pub(super) fn document() -> Fault {
    Known::InvalidXmlDocument.into()
}

pub(super) fn unsupported(element: &Element) -> Fault {
    Fault::from(Known::UnsupportedXmlNode).with_detail("XmlNodeName", element.name.as_str())
}

pub(super) fn value(element: &Element) -> Fault {
    let fault = Fault::from(Known::InvalidXmlNodeValue);
    let fault = fault.with_detail("XmlNodeName", element.name.as_str());
    fault.with_detail("XmlNodeValue", element.text.as_str())
}
