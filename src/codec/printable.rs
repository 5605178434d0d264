//! Makes text safe to print: escapes characters that would control a terminal, and masks keys and
//! signatures of accounts.
//!
//! Invariants
//! * escaping twice is the same as escaping once, so parts of a line may be escaped before;
//! * a mask has as many characters as the secret, so marks below a line stay in their columns.

use std::borrow::Cow;

/// The names of the values that are secret, in connection strings and shared access signatures.
const SECRETS: [&str; 4] = ["accountkey", "password", "sharedaccesskey", "sig"];
/// A value of fewer bytes may be a part of other words.
const REPEATED_MIN: usize = 8;
/// The length of an account's key in Base64 without its two `=`.
const KEY_CHARS: usize = 86;

/// Escapes control characters and those that change the direction of text, so that a terminal only
/// displays the text.
pub(crate) fn without_control(text: &str) -> String {
    lines_without_control(text).replace('\n', "\\n")
}

/// As [`without_control`], but keeps the ends of lines.
pub(crate) fn lines_without_control(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return text.into();
    }
    let mut shown = String::new();
    for c in text.chars() {
        match is_control(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown.into()
}

/// Whether a character changes what a terminal does with other text; a line feed does not.
pub(crate) fn is_control(c: char) -> bool {
    let is_direction = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    is_direction || c.is_control() && c != '\n'
}

/// Makes a message safe to print. Its lines stay lines.
pub(crate) fn message(text: &str) -> String {
    lines_without_control(&without_secrets(text)).into_owned()
}

/// Replaces each character of keys and signatures by `*`: the values of [`SECRETS`], also with the
/// `=` encoded as in a URL, and each word that has the form of an account's key. A message may
/// repeat a part of a text, so what follows has the same values masked.
pub(crate) fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    let mut from = 0;
    while let Some((at, len)) = secret(&shown[from..]) {
        let (before, rest) = shown.split_at(from + at);
        let value = &rest[..len];
        let mask = "*".repeat(value.chars().count());
        let times = if len < REPEATED_MIN { 1 } else { usize::MAX };
        let masked = format!("{before}{}", rest.replacen(value, &mask, times));
        from = before.len() + mask.len();
        shown = masked.into();
    }
    shown
}

/// Returns the place and the length of the first secret in `text`.
fn secret(text: &str) -> Option<(usize, usize)> {
    let mut signs = text.match_indices(['=', '%']).map(|(at, _)| at);
    signs.find_map(|at| named_value(text, at).or_else(|| key(text, at)))
}

/// Returns the value after the sign at `at`, if its name is that of a secret.
fn named_value(text: &str, at: usize) -> Option<(usize, usize)> {
    let (before, from) = text.split_at(at);
    let after = ["=", "%3D", "%3d"].iter().find_map(|sign| from.strip_prefix(sign))?;
    let trimmed = before.trim_end_matches(' ');
    let name = trimmed.rsplit(|c: char| !c.is_ascii_alphanumeric()).next()?;
    let is_after_escape = trimmed[..trimmed.len() - name.len()].ends_with('%');
    let name = if is_after_escape { name.get(2..)? } else { name };
    // `sig = x` has a value, unlike `sig= is missing`.
    let after = if trimmed == before { after } else { after.trim_start_matches(' ') };
    let value = after.trim_start_matches(['\'', '"']);
    let ends = |c: char| c.is_whitespace() || matches!(c, ';' | '&' | '\'' | '"' | '\\' | '…');
    let len = value.find(ends).unwrap_or(value.len());
    let is_secret = len > 0 && SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
    is_secret.then_some((text.len() - value.len(), len))
}

/// Returns the account's key whose first `=` is at `at`.
fn key(text: &str, at: usize) -> Option<(usize, usize)> {
    let (before, from) = text.split_at(at);
    let is_base64 = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/');
    let len = before.chars().rev().take_while(is_base64).count();
    (from.starts_with("==") && len == KEY_CHARS).then_some((at - len, len + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_control_a_terminal_are_escaped() {
        let text = "a\u{1b}[31m\rb\u{7}\u{9b}m\u{7f}\u{202e}\u{2066}é\n漢";
        let shown = "a\\u{1b}[31m\\rb\\u{7}\\u{9b}m\\u{7f}\\u{202e}\\u{2066}é";
        assert_eq!(lines_without_control(text), format!("{shown}\n漢"));
        assert_eq!(without_control(text), format!("{shown}\\n漢"));
        assert_eq!(without_control(&without_control(text)), without_control(text));
    }

    #[test]
    fn secrets_are_masked() {
        let key = "Ab+/".repeat(21) + "Ab==";
        let stars = "*".repeat(key.len());
        for (text, shown) in [
            ("AccountName=a;AccountKey=b+/==;X=y", "AccountName=a;AccountKey=*****;X=y"),
            ("'https://a/T?sv=1&sig=b%3D&se=2' is", "'https://a/T?sv=1&sig=****&se=2' is"),
            ("SIG = 'é' sig=x sig= SharedAccessKey=y", "SIG = '*' sig=* sig= SharedAccessKey=*"),
            ("a%3Fsig%3Dxyz accountkey=Eby8…') no", "a%3Fsig%3D*** accountkey=****…') no"),
            ("sig=a+b%3Dcd&x 'a+b%3Dcd' bad", "sig=********&x '********' bad"),
            ("design=x config=y AccountName=z", "design=x config=y AccountName=z"),
            (r#"{"path":"/T&sig=x\n"}"#, r#"{"path":"/T&sig=*\n"}"#),
            (&format!("'{key}' found"), &format!("'{stars}' found")),
            (&format!("A{key}"), &format!("A{key}")),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }
}
