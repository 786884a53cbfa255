//! Reads `-f` arguments: files, directories and standard input.

use crate::wait_notice::WaitNotice;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use whittle_api::field::{FieldError, FieldPath};
use whittle_api::manifest::{self, Document, Located, ManifestError, Object};
use whittle_api::words;

/// The most that is read of one file: a dump of 100,000 pods has some hundred megabytes.
const LARGEST: u64 = 1 << 30;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {fault}")]
pub struct FileError {
    path: String,
    pub(crate) fault: Fault,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("cannot be read: {0}: correct its name, or run this in the directory where it is")]
    Missing(io::Error),
    #[error("it is a directory, and only files are read here: name those in it that are meant, as with DIRECTORY/*.yaml")]
    Directory,
    #[error("there is no file of this name, and * is not expanded here: name each file, or their directory")]
    Pattern,
    #[error(
        "it is larger than {} MiB, and no more is read of one file: give it in parts, or leave out kinds and namespaces that do not matter",
        LARGEST >> 20
    )]
    TooLarge,
    #[error("this is text in UTF-16, as PowerShell writes it: write it as UTF-8, as with `| Out-File -Encoding utf8`")]
    Utf16,
    #[error("this is text in UTF-32: write it as UTF-8")]
    Utf32,
    #[error("nothing is fetched here: give what `curl -sSfL URL` prints, on standard input with -f -")]
    Url,
    #[error("there is no file of this name: each file needs a -f of its own, where kubectl takes several between commas")]
    Commas,
    #[error("this is compressed by gzip: give what `gunzip -c` prints, on standard input with -f -")]
    Gzip,
    #[error("this is no text in UTF-8: name a file of text")]
    NoText,
    #[error("it is named more than once with -, and can be read only once: leave the others out")]
    Twice,
    #[error("there is no *.yaml, *.yml or *.json file in this directory")]
    Empty,
    #[error("there is no *.yaml, *.yml or *.json file in this directory, and those in it are not looked into: name each with -f")]
    Nested,
}

impl Fault {
    /// The reason alone, for a sentence that says already what cannot be read.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Unreadable(error) | Self::Missing(error) => error.to_string(),
            fault => fault.to_string(),
        }
    }

    /// The error of a file.
    fn of(self, path: &Path) -> FileError {
        let name = path.to_string_lossy();
        let fault = match self {
            Self::Unreadable(error) if error.kind() == io::ErrorKind::IsADirectory => Self::Directory,
            Self::Unreadable(error) if error.kind() == io::ErrorKind::NotFound => match &*name {
                url if url.starts_with("https://") || url.starts_with("http://") => Self::Url,
                pattern if pattern.contains('*') => Self::Pattern,
                several if several.contains(',') => Self::Commas,
                _ => Self::Missing(error),
            },
            other => other,
        };
        FileError { path: shown(path), fault }
    }
}

/// A text and its name in error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub text: String,
}

/// The name of a file in messages: one with a line break, or another letter that is not shown, is quoted, so that every message stays a
/// line.
pub(crate) fn shown(path: &Path) -> String {
    words::printable(&path.display().to_string()).into_owned()
}

/// The name of an `-f` argument in messages.
pub(crate) fn named(path: &Path) -> String {
    if is_stdin(path) { STDIN.to_owned() } else { shown(path) }
}

#[cfg(test)]
fn read(path: &Path, stdin: &mut dyn Read) -> Result<Vec<File>, FileError> {
    read_each(path, stdin).into_iter().collect()
}

/// Why a file cannot be opened.
pub(crate) fn unreadable(path: &Path, error: io::Error) -> FileError {
    Fault::from(error).of(path)
}

/// Reads all `-f` arguments; standard input can be only one of them.
pub(crate) fn read_all(paths: &[PathBuf], stdin: &mut dyn Read) -> Vec<Result<File, FileError>> {
    if let Err(error) = only_one_stdin(paths) {
        return vec![Err(error)];
    }
    paths.iter().flat_map(|path| read_each(path, stdin)).collect()
}

/// Standard input can be read only once.
///
/// # Errors
/// It is named more than once.
pub(crate) fn only_one_stdin<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), FileError> {
    match paths.into_iter().filter(|path| is_stdin(path)).count() {
        0 | 1 => Ok(()),
        _ => Err(FileError { path: STDIN.to_owned(), fault: Fault::Twice }),
    }
}

/// The name of standard input in messages.
const STDIN: &str = "standard input";

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Reads one `-f` argument: a file, a directory (its `*.yaml`, `*.yml` and `*.json`, by name, not recursively), or `-` for `stdin`. Of a
/// directory each file is read for itself, so that an unreadable one hides no other; JSON that is no manifest, such as a catalog or what
/// a command printed, is a file without an object.
pub fn read_each(path: &Path, stdin: &mut dyn Read) -> Vec<Result<File, FileError>> {
    if is_stdin(path) {
        let name = STDIN.to_owned();
        let _notice = WaitNotice::with(format!("reading {name}"));
        return vec![match bounded(stdin, LARGEST) {
            Ok(text) => Ok(File { name, text }),
            Err(fault) => Err(FileError { path: name, fault }),
        }];
    }
    if !path.is_dir() {
        return vec![read_file(path)];
    }
    match manifests_in(path) {
        Ok(manifests) if manifests.is_empty() => {
            let fault = if has_directories(path) { Fault::Nested } else { Fault::Empty };
            vec![Err(fault.of(path))]
        }
        Ok(manifests) => manifests.iter().map(|path| read_beside_others(path)).collect(),
        Err(error) => vec![Err(Fault::Unreadable(error).of(path))],
    }
}

fn read_file(path: &Path) -> Result<File, FileError> {
    Ok(File { name: shown(path), text: text(path)? })
}

/// Reads a file of a directory, which nobody named.
fn read_beside_others(path: &Path) -> Result<File, FileError> {
    let mut file = read_file(path)?;
    if path.extension().is_some_and(|extension| extension == "json") && is_other_json(&file.text) {
        file.text.clear();
    }
    Ok(file)
}

/// Which fields a map has of those that objects and their lists have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FieldsOfObjects {
    api_version: Option<IgnoredAny>,
    kind: Option<IgnoredAny>,
    metadata: Option<IgnoredAny>,
    spec: Option<IgnoredAny>,
    items: Option<IgnoredAny>,
}

impl FieldsOfObjects {
    fn is_any_there(&self) -> bool {
        [self.api_version, self.kind, self.metadata, self.spec, self.items].iter().any(Option::is_some)
    }
}

/// Whether a text is JSON in which nothing is an object, nor looks like one that lacks its kind.
fn is_other_json(text: &str) -> bool {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let maps: Result<Vec<FieldsOfObjects>, _> = serde_json::from_str(text).or_else(|_| serde_json::from_str(text).map(|map| vec![map]));
    maps.is_ok_and(|maps| !maps.iter().any(FieldsOfObjects::is_any_there))
}

/// The text of a file that an option names.
///
/// # Errors
/// It cannot be read, is no text, or is too large.
pub(crate) fn text(path: &Path) -> Result<String, FileError> {
    let read = || {
        let file = fs::File::open(path)?;
        let metadata = file.metadata()?;
        // What is no regular file, such as a pipe or /dev/zero, has no length.
        if metadata.is_file() && metadata.len() > LARGEST {
            return Err(Fault::TooLarge);
        }
        let _notice = if metadata.is_file() { WaitNotice::silent() } else { WaitNotice::with(format!("reading {}", shown(path))) };
        bounded(file, LARGEST)
    };
    read().map_err(|fault| fault.of(path))
}

/// The text of an input that may be endless.
fn bounded(input: impl Read, largest: u64) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    let read = input.take(largest.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(read).is_ok_and(|read| read > largest) {
        return Err(Fault::TooLarge);
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Err(Fault::Gzip);
    }
    // The byte order marks of UTF-32, or three of four bytes of its first letter.
    if matches!(bytes.as_slice(), [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] | [1..=255, 0, 0, 0, ..] | [0, 0, 0, 1..=255, ..]) {
        return Err(Fault::Utf32);
    }
    // The byte order marks of UTF-16, or every other byte of its first letters.
    let is_wide = matches!(bytes.as_slice(), [0, letter, 0, ..] | [letter, 0, _, 0, ..] if *letter != 0);
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) || is_wide {
        return Err(Fault::Utf16);
    }
    String::from_utf8(bytes).map_err(|_| Fault::NoText)
}

fn has_directories(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|entries| entries.flatten().any(|entry| entry.path().is_dir()))
}

fn manifests_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut manifests = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        // A link to nothing is a manifest that cannot be read.
        let is_file = path.is_file() || !path.exists();
        if is_file && path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json") {
            manifests.push(path);
        }
    }
    manifests.sort();
    Ok(manifests)
}

/// All objects of some files.
#[derive(Debug, Default)]
pub struct Objects {
    /// In the order of the files.
    pub located: Vec<Located<Object>>,
    /// The names of files that have none.
    pub empty: Vec<String>,
}

/// Reads all objects of `-f` arguments.
///
/// # Errors
/// Every error of every file, one line each; nothing is returned if there is any.
pub fn objects(paths: &[PathBuf], stdin: &mut dyn Read) -> Result<Objects, Vec<String>> {
    let (mut objects, mut errors) = (Objects::default(), Vec::new());
    for file in read_all(paths, stdin) {
        match file {
            Ok(file) => match manifest::read(&file.name, &file.text) {
                Ok(read) if read.is_empty() => objects.empty.push(file.name),
                Ok(read) => objects.located.extend(read),
                Err(faults) => errors.extend(faults.iter().map(ToString::to_string)),
            },
            Err(error) => errors.push(error.to_string()),
        }
    }
    if errors.is_empty() { Ok(objects) } else { Err(errors) }
}

/// The objects of manifests that can be read, and what is wrong with the others.
#[derive(Debug, Default)]
pub(crate) struct Readable {
    /// In the order of the files.
    pub(crate) located: Vec<Located<Object>>,
    /// The names of files that have none, not even one with which something is wrong.
    pub(crate) empty: Vec<String>,
    /// Objects that no server has, or with fields that nothing can hold, and why.
    pub(crate) refused: Vec<String>,
    /// What is no object, such as a file that is not there or is no YAML, and why.
    pub(crate) unreadable: Vec<String>,
}

impl Readable {
    /// All that `-f` arguments have.
    pub(crate) fn of(paths: &[PathBuf], stdin: &mut dyn Read) -> Self {
        let mut found = Self::default();
        for file in read_all(paths, stdin) {
            match file {
                Ok(file) => found.add(&file.name, &file.text),
                Err(error) => found.unreadable.push(error.to_string()),
            }
        }
        found
    }

    /// Adds the objects of a text. If something is wrong with one of them, each is read for itself.
    pub(crate) fn add(&mut self, name: &str, text: &str) {
        let faults = match manifest::read(name, text) {
            Ok(read) if read.is_empty() => return self.empty.push(name.to_owned()),
            Ok(read) => return self.located.extend(read),
            Err(faults) => faults,
        };
        let mut no_objects = Vec::new();
        for document in manifest::documents(name, text) {
            match document.map(|document| (failed_request(&document), document)) {
                Err(error) | Ok((Some(error), _)) => no_objects.push(error),
                Ok((None, document)) => self.located.extend(alone(name, &document)),
            }
        }
        for fault in faults {
            let is_same = |other: &ManifestError| (other.mark, &other.field, &other.message) == (fault.mark, &fault.field, &fault.message);
            // What is no YAML has neither object nor field.
            let is_no_object = (fault.object.is_none() && fault.field.is_root()) || no_objects.iter().any(is_same);
            let list = if is_no_object { &mut self.unreadable } else { &mut self.refused };
            list.push(fault.to_string());
        }
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.located.append(&mut other.located);
        self.empty.append(&mut other.empty);
        self.refused.append(&mut other.refused);
        self.unreadable.append(&mut other.unreadable);
    }
}

/// That a document stands in the place of the objects that were asked for.
fn failed_request(document: &Document) -> Option<ManifestError> {
    let (api_version, kind) = document.type_meta();
    let failure = manifest::failure(api_version, kind, |field| document.value().get(field).and_then(Value::as_str))?;
    Some(document.error(failure))
}

/// An object of a text in which something is wrong with another one; none if it is this one.
fn alone(file: &str, document: &Document) -> Option<Located<Object>> {
    if !document.repeated_keys().is_empty() {
        return None;
    }
    let (api_version, kind) = document.type_meta();
    let mut value = document.value().clone();
    // Items of a list have those of the list, if they do not say them.
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    let read = manifest::read(file, &value.to_string()).ok()?.into_iter().next()?;
    let place = document.error(FieldError::new(FieldPath::root(), ""));
    Some(Located { document: place.document, line: place.mark.map_or(read.line, |mark| mark.line), ..read })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_one_object_hides_no_other() {
        let node = |name: &str, more: &str| format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}{more}}}}}\n");
        let read = |text: &str| {
            let mut found = Readable::default();
            found.add("a.yaml", text);
            let places = found.located.iter().map(|one| (one.value.key(), one.document, one.line)).collect::<Vec<_>>();
            (places, found.refused, found.unreadable)
        };
        let twice = node("b", ", name: c");
        let (places, refused, unreadable) = read(&[&*node("a", ""), &twice, &node("d", "")].join("---\n"));
        assert_eq!(places, [("a".to_owned(), 1, 1), ("d".to_owned(), 3, 5)]);
        assert!(refused.len() == 1 && refused[0].contains("document 2, Node") && unreadable.is_empty(), "{refused:?} {unreadable:?}");

        let list = "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: a}\n- null\n- metadata: {name: b}\n";
        let (places, refused, unreadable) = read(list);
        assert_eq!(places.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(), ["a", "b"], "they are of the list's kind");
        assert!(refused.is_empty() && unreadable.len() == 1 && unreadable[0].contains("items[1]"), "{refused:?} {unreadable:?}");

        let failure = "apiVersion: v1\nkind: Status\nstatus: Failure\nmessage: denied\n";
        for text in [failure.to_owned(), "a: [\n".to_owned(), format!("{}---\nkind: Node\n", node("a", ""))] {
            let (_, refused, unreadable) = read(&text);
            assert!(refused.is_empty() && unreadable.len() == 1, "{text}: {refused:?} {unreadable:?}");
        }
    }

    #[test]
    fn a_directory_is_read_in_the_order_of_file_names() {
        let folder = std::env::temp_dir().join(format!("whittle-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert!(matches!(read(&folder, &mut std::io::empty()), Err(FileError { fault: Fault::Empty, .. })));
        std::fs::create_dir_all(folder.join("nested.yaml")).unwrap();
        assert!(matches!(read(&folder, &mut std::io::empty()), Err(FileError { fault: Fault::Nested, .. })), "a directory is no manifest");
        for (name, text) in [("b.yaml", "2"), ("a.yml", "1"), ("c.txt", "3"), ("d.json", "4")] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let texts: Vec<String> = read(&folder, &mut std::io::empty()).unwrap().into_iter().map(|file| file.text).collect();
        assert_eq!(texts, ["1", "2", "4"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn json_of_a_directory_that_is_no_manifest_is_a_file_without_an_object() {
        let node = r#"{"kind": "Node", "apiVersion": "v1"}"#;
        for other in [r#"{"engine": "e", "nodeClaims": []}"#, r#"[{"name": "m5.large"}]"#, "\u{feff}{}", "[]", r#"{"kind": null}"#] {
            assert!(is_other_json(other), "{other}");
        }
        // What may be meant as an object is told as what is wrong with it.
        let half = [r#"{"kind": "Node"}"#, r#"{"metadata": {"name": "a"}}"#, r#"{"items": []}"#, r#"[{"a": 1}, {"spec": {}}]"#];
        for kept in half.into_iter().chain([node, "4", "", "{", "[1, 2, 3]", "kind: Node", r#"{"a": 1} {"b": 1}"#]) {
            assert!(!is_other_json(kept), "{kept}");
        }
        let folder = std::env::temp_dir().join(format!("whittle-other-json-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let other = r#"{"engine": "e"}"#;
        for (name, text) in [("a.json", other), ("b.json", node), ("c.yaml", other)] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let texts: Vec<String> = read(&folder, &mut std::io::empty()).unwrap().into_iter().map(|file| file.text).collect();
        let named = read(&folder.join("a.json"), &mut std::io::empty()).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(texts, ["", node, other], "only JSON");
        assert_eq!(named[0].text, other, "what is named counts");
    }

    #[test]
    fn every_unreadable_file_of_a_directory_is_named() {
        let folder = std::env::temp_dir().join(format!("whittle-unreadable-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.yaml"), [0xff]).unwrap();
        std::fs::write(folder.join("b.yaml"), "{apiVersion: v1, kind: Node, metadata: {name: b}}").unwrap();
        std::os::unix::fs::symlink(folder.join("nothing"), folder.join("c.yaml")).unwrap();
        let readable: Vec<bool> = read_each(&folder, &mut std::io::empty()).iter().map(Result::is_ok).collect();
        let errors = objects(std::slice::from_ref(&folder), &mut std::io::empty()).unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(readable, [false, true, false]);
        assert!(errors.len() == 2 && errors[0].contains("a.yaml") && errors[1].contains("c.yaml"), "{errors:?}");
    }

    #[test]
    fn what_is_no_utf_8_is_named() {
        let said = |bytes: &[u8]| read(Path::new("-"), &mut &*bytes).unwrap_err().to_string();
        assert!(said(&[0xff, 0xfe, b'a', 0]).contains("UTF-16"), "as PowerShell writes it");
        for wide in [&[0xff, 0xfe, 0, 0, b'a', 0, 0, 0][..], &[0, 0, 0xfe, 0xff], &[b'a', 0, 0, 0], &[0, 0, 0, b'a']] {
            assert!(said(wide).contains("UTF-32"), "{wide:?}");
        }
        assert!(said(&[b'a', 0, b'p', 0]).contains("UTF-16") && said(&[0, b'a', 0, b'p']).contains("UTF-16"), "without a byte order mark");
        assert!(said(&[b'a', 0xff]).contains("no text in UTF-8"));
        assert!(said(&[0x1f, 0x8b, 8, 0]).ends_with("give what `gunzip -c` prints, on standard input with -f -"));
    }

    #[test]
    fn a_name_that_kubectl_would_take_is_told_what_to_write_here() {
        let said = |name: &str| text(Path::new(name)).unwrap_err().to_string();
        assert_eq!(
            said("https://example.com/a,b.yaml"),
            "https://example.com/a,b.yaml: nothing is fetched here: give what `curl -sSfL URL` prints, on standard input with -f -"
        );
        assert!(said("/no/such/a.yaml,/no/such/b.yaml").contains("each file needs a -f of its own"));
        assert!(said("/no/such/*.yaml").contains("* is not expanded here"));
        let missing = said("/no/such/a.yaml");
        assert!(missing.starts_with("/no/such/a.yaml: cannot be read: ") && missing.contains("correct its name"), "{missing}");
        let directory = said(&std::env::temp_dir().display().to_string());
        assert!(
            directory
                .ends_with(": it is a directory, and only files are read here: name those in it that are meant, as with DIRECTORY/*.yaml"),
            "{directory}"
        );
    }

    #[test]
    fn a_file_that_is_too_large_is_named_with_the_limit() {
        let path = std::env::temp_dir().join(format!("whittle-large-{}.yaml", std::process::id()));
        // It takes no space: nothing is written.
        std::fs::File::create(&path).and_then(|file| file.set_len(LARGEST + 1)).unwrap();
        let error = text(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(error.starts_with(&format!("{}: it is larger than 1024 MiB", path.display())) && error.contains("in parts"), "{error}");
    }

    #[test]
    fn a_name_with_a_line_break_stays_in_its_line() {
        let error = text(Path::new("/no/such\nerror: all is well\u{1b}[31m.yaml")).unwrap_err().to_string();
        assert!(error.starts_with("\"/no/such\\nerror: all is well\\u{1b}[31m.yaml\": cannot be read: "), "{error}");
        assert_eq!(shown(Path::new("a b/ä.yaml")), "a b/ä.yaml");
    }

    #[test]
    fn an_endless_input_is_read_up_to_the_limit() {
        assert!(matches!(bounded(io::repeat(0), 1000), Err(Fault::TooLarge)));
        assert_eq!(bounded(io::repeat(b'a').take(1000), 1000).unwrap().len(), 1000);
    }

    #[test]
    fn standard_input_is_one_file_only() {
        let paths = |words: &[&str]| words.iter().map(PathBuf::from).collect::<Vec<_>>();
        let read = |words: &[&str]| read_all(&paths(words), &mut "kind: Pod".as_bytes());
        let refused = read(&["-", "/no/such/file", "-"]);
        let said = "standard input: it is named more than once with -, and can be read only once: leave the others out";
        assert!(matches!(&refused[..], [Err(error)] if error.to_string() == said), "{refused:?}");
        assert_eq!(read(&["-"]).len(), 1);
    }

    #[test]
    fn standard_input_is_read_as_a_file() {
        let read = read(Path::new("-"), &mut "kind: Pod".as_bytes()).unwrap();
        assert_eq!(read, [File { name: "standard input".to_owned(), text: "kind: Pod".to_owned() }]);
    }
}
