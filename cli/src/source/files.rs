//! Reads `-f` arguments: files, directories and standard input.

use std::io::Read;
use std::path::{Path, PathBuf};
use whittle_api::manifest::{self, Located, Object};

/// Why an argument cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{path}: cannot be read: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{path}: this is text in UTF-16, as PowerShell writes it: write it as UTF-8, as with `| Out-File -Encoding utf8`")]
    Utf16 { path: String },
    #[error("{path}: this is no text in UTF-8: name a manifest")]
    NoText { path: String },
    #[error("{path}: there is no *.yaml, *.yml or *.json file in this directory")]
    Empty { path: String },
}

/// A text and its name in error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub text: String,
}

/// Reads one `-f` argument: a file, a directory (its `*.yaml`, `*.yml` and `*.json`, by name, not recursively), or `-` for
/// `stdin`.
///
/// # Errors
/// Unreadable files, and directories without manifests.
pub fn read(path: &Path, stdin: &mut dyn Read) -> Result<Vec<File>, FileError> {
    read_each(path, stdin).into_iter().collect()
}

/// Reads one `-f` argument as [`read`] does; of a directory each file for itself, so that an unreadable one hides no other.
pub fn read_each(path: &Path, stdin: &mut dyn Read) -> Vec<Result<File, FileError>> {
    if path == Path::new("-") {
        let name = "standard input".to_owned();
        let mut bytes = Vec::new();
        return vec![match stdin.read_to_end(&mut bytes) {
            Ok(_) => decoded(name, bytes),
            Err(source) => Err(FileError::Unreadable { path: name, source }),
        }];
    }
    if !path.is_dir() {
        return vec![read_file(path)];
    }
    match manifests_in(path) {
        Ok(manifests) if manifests.is_empty() => vec![Err(FileError::Empty { path: path.display().to_string() })],
        Ok(manifests) => manifests.iter().map(|path| read_file(path)).collect(),
        Err(source) => vec![Err(FileError::Unreadable { path: path.display().to_string(), source })],
    }
}

fn read_file(path: &Path) -> Result<File, FileError> {
    let name = path.display().to_string();
    match std::fs::read(path) {
        Ok(bytes) => decoded(name, bytes),
        Err(source) => Err(FileError::Unreadable { path: name, source }),
    }
}

fn decoded(name: String, bytes: Vec<u8>) -> Result<File, FileError> {
    // The byte order marks of UTF-16.
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(FileError::Utf16 { path: name });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(File { name, text }),
        Err(_) => Err(FileError::NoText { path: name }),
    }
}

fn manifests_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut manifests = Vec::new();
    for entry in std::fs::read_dir(directory)? {
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

/// Reads all objects of `-f` arguments, in their order.
///
/// # Errors
/// Every error of every file, one line each; nothing is returned if there is any.
pub fn objects(paths: &[PathBuf], stdin: &mut dyn Read) -> Result<Vec<Located<Object>>, Vec<String>> {
    let (mut objects, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        for file in read_each(path, stdin) {
            match file {
                Ok(file) => match manifest::read(&file.name, &file.text) {
                    Ok(read) => objects.extend(read),
                    Err(faults) => errors.extend(faults.iter().map(ToString::to_string)),
                },
                Err(error) => errors.push(error.to_string()),
            }
        }
    }
    if errors.is_empty() { Ok(objects) } else { Err(errors) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_read_in_the_order_of_file_names() {
        let folder = std::env::temp_dir().join(format!("whittle-files-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("nested.yaml")).unwrap();
        assert!(matches!(read(&folder, &mut std::io::empty()), Err(FileError::Empty { .. })), "a directory is no manifest");
        for (name, text) in [("b.yaml", "2"), ("a.yml", "1"), ("c.txt", "3"), ("d.json", "4")] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let texts: Vec<String> = read(&folder, &mut std::io::empty()).unwrap().into_iter().map(|file| file.text).collect();
        assert_eq!(texts, ["1", "2", "4"]);
        std::fs::remove_dir_all(&folder).unwrap();
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
        assert!(said(&[b'a', 0xff]).contains("no text in UTF-8"));
    }

    #[test]
    fn standard_input_is_read_as_a_file() {
        let read = read(Path::new("-"), &mut "kind: Pod".as_bytes()).unwrap();
        assert_eq!(read, [File { name: "standard input".to_owned(), text: "kind: Pod".to_owned() }]);
    }
}
