//! MIME multipart archives for cloud-init: parsing the user's and writing ours.

use super::from_base64;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Why a text is no archive.
pub(super) type Problem = Cow<'static, str>;

/// One part: headers by canonical name, and a body without the line break that belongs to the next boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

const CONTENT_TYPE: &str = "Content-Type";
const TRANSFER_ENCODING: &str = "Content-Transfer-Encoding";
const BASE64: &str = "base64";
const QUOTED_PRINTABLE: &str = "quoted-printable";
const BOUNDARY: &str = "//";

impl Part {
    pub(super) fn new(content_type: &str, body: impl Into<String>) -> Self {
        Self { headers: BTreeMap::from([(CONTENT_TYPE.to_owned(), content_type.to_owned())]), body: body.into() }
    }
    /// Its content type, empty when it has none.
    pub(super) fn content_type(&self) -> &str {
        self.headers.get(CONTENT_TYPE).map(String::as_str).unwrap_or_default()
    }
    /// How its body is encoded, if it is: `7bit` and the like leave it as it is.
    fn encoding(&self) -> Option<&'static str> {
        let name = self.headers.get(TRANSFER_ENCODING)?;
        [BASE64, QUOTED_PRINTABLE].into_iter().find(|known| name.eq_ignore_ascii_case(known))
    }
    /// The part with only the headers without which its body cannot be read.
    pub(super) fn with_needed_headers(&self) -> Self {
        let mut part = Self::new(self.content_type(), self.body.clone());
        part.headers.extend(self.encoding().map(|name| (TRANSFER_ENCODING.to_owned(), name.to_owned())));
        part
    }
    /// The part with its body as plain text.
    pub(super) fn decoded(&self) -> Result<Self, Problem> {
        let body = match self.encoding() {
            None => self.body.clone(),
            Some(BASE64) => {
                let text = from_base64(&self.body).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                text.ok_or("a part of it is no text in base64, as its header says")?
            }
            Some(_) => quoted_printable(&self.body).ok_or("a part of it is no text in quoted-printable, as its header says")?,
        };
        Ok(Self::new(self.content_type(), body))
    }
}

/// Whether text looks like an archive; [`parse`] checks whether it is one.
pub(super) fn looks_like(text: &str) -> bool {
    let text = text.trim();
    text.starts_with("MIME-Version:") || text.starts_with("Content-Type:")
}

/// The archive as text with LF line ends only.
pub(super) fn render(parts: &[Part]) -> String {
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\n\n--{BOUNDARY}\n");
    let mut add = |part: std::fmt::Arguments<'_>| text.write_fmt(part).expect("writing to a String does not fail");
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            add(format_args!("\n--{BOUNDARY}\n"));
        }
        for (name, value) in &part.headers {
            add(format_args!("{name}: {value}\n"));
        }
        add(format_args!("\n{}", part.body));
    }
    add(format_args!("\n--{BOUNDARY}--\n"));
    text.replace('\r', "")
}

/// Reads an archive. The text is taken as it is: a blank line before the first header ends the headers. It may end with a delimiter
/// instead of the closing boundary, as Karpenter's documentation shows it; then nothing is missing.
pub(super) fn parse(text: &str) -> Result<Vec<Part>, Problem> {
    let text = text.replace("\r\n", "\n");
    let (headers, body) = headers(&text)?;
    let content_type = headers.get(CONTENT_TYPE).ok_or("it has no Content-Type header")?;
    if !content_type.to_ascii_lowercase().starts_with("multipart/") {
        return Err("its Content-Type is not multipart".into());
    }
    let delimiter = format!("--{}", boundary(content_type).ok_or("its Content-Type names no boundary")?);
    let mut parts = Vec::new();
    let mut current: Option<Vec<&str>> = None;
    for line in body.split('\n') {
        match line.trim_end().strip_prefix(delimiter.as_str()) {
            Some(mark @ ("" | "--")) => {
                if let Some(lines) = current.take() {
                    parts.push(part(&lines.join("\n"))?);
                }
                if mark == "--" {
                    let is_whole = !parts.is_empty() || another_delimiter(&delimiter, body).is_none();
                    return if is_whole { Ok(parts) } else { Err(without_parts(&delimiter, body)) };
                }
                current = Some(Vec::new());
            }
            _ => current.iter_mut().for_each(|lines| lines.push(line)),
        }
    }
    let Some(last) = current else { return Err(without_parts(&delimiter, body)) };
    let ends_in_delimiter = last.iter().all(|line| line.trim().is_empty());
    let open = || format!("its last part does not end: add the line \"{delimiter}--\" after it");
    if ends_in_delimiter { Ok(parts) } else { Err(open().into()) }
}

/// The first line of a body that looks like the delimiter of another boundary.
fn another_delimiter<'a>(delimiter: &str, body: &'a str) -> Option<&'a str> {
    body.lines().map(str::trim_end).find(|line| line.starts_with("--") && line.len() > 2 && !line.starts_with(delimiter))
}

/// The problem of an archive none of whose parts begins with the delimiter.
fn without_parts(delimiter: &str, body: &str) -> Problem {
    let remedy = match another_delimiter(delimiter, body) {
        Some(line) => format!("there is {line:?} instead: write the same boundary in both"),
        None => "none does: write that line before each part".to_owned(),
    };
    format!("by the boundary in its Content-Type each part begins with the line \"{delimiter}\", and {remedy}").into()
}

fn part(text: &str) -> Result<Part, &'static str> {
    let (headers, body) = headers(text)?;
    Ok(Part { headers, body: body.to_owned() })
}

/// Headers up to the first empty line, folded lines joined, and what follows.
fn headers(text: &str) -> Result<(BTreeMap<String, String>, &str), &'static str> {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    let mut last: Option<String> = None;
    let mut rest = text;
    while !rest.is_empty() {
        let (line, next) = rest.split_once('\n').unwrap_or((rest, ""));
        rest = next;
        if line.is_empty() {
            break;
        }
        if line.starts_with([' ', '\t']) {
            let value = last.as_ref().and_then(|name| headers.get_mut(name)).ok_or("its first header is indented")?;
            value.push(' ');
            value.push_str(line.trim());
        } else {
            let (name, value) = line.split_once(':').ok_or("it has a header line without a colon")?;
            let name = canonical(name.trim());
            headers.insert(name.clone(), value.trim().to_owned());
            last = Some(name);
        }
    }
    Ok((headers, rest))
}

/// The text of a quoted-printable body (RFC 2045, 6.7).
fn quoted_printable(body: &str) -> Option<String> {
    let mut text = Vec::new();
    let mut lines = body.split('\n').peekable();
    while let Some(line) = lines.next() {
        let line = line.trim_end();
        let (line, continues) = line.strip_suffix('=').map_or((line, false), |start| (start, true));
        let (start, encoded) = line.split_once('=').map_or((line, None), |(start, rest)| (start, Some(rest)));
        text.extend_from_slice(start.as_bytes());
        for piece in encoded.into_iter().flat_map(|rest| rest.split('=')) {
            let (code, plain) = piece.split_at_checked(2)?;
            let is_code = code.bytes().all(|digit| digit.is_ascii_hexdigit());
            text.push(u8::from_str_radix(code, 16).ok().filter(|_| is_code)?);
            text.extend_from_slice(plain.as_bytes());
        }
        if !continues && lines.peek().is_some() {
            text.push(b'\n');
        }
    }
    String::from_utf8(text).ok()
}

/// `content-TYPE` becomes `Content-Type`.
fn canonical(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + &letters.as_str().to_ascii_lowercase())
    };
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

fn boundary(content_type: &str) -> Option<&str> {
    let parameter = content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then_some(value.trim())
    })?;
    Some(parameter.trim_matches('"')).filter(|text| !text.is_empty())
}
