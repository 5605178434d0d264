//! Elements of settings, and their errors.

use crate::rest::protocol::fault::{Fault, Known};
use crate::rest::protocol::xml::Element;

/// Refuses children with other names, and repeated ones.
pub(super) fn only(element: &Element, names: &[&str]) -> Result<(), Fault> {
    // If there are more children than names, one of the first `names.len() + 1` must be repeated or
    // unknown. Only these are compared, because comparing all takes quadratic time.
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
