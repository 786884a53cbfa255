//! Reads `-f` arguments: files, directories and standard input.

use std::io::Read;
use std::path::{Path, PathBuf};
use whittle_api::manifest::{self, Located, Object};

/// Why an argument cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{path}: cannot be read: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("{path}: there is no *.yaml or *.yml file in this directory")]
    Empty { path: String },
}

/// A text and its name in error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub text: String,
}

/// Reads one `-f` argument: a file, a directory (its `*.yaml` and `*.yml`, by name, not recursively), or `-` for
/// `stdin`.
///
/// # Errors
/// Unreadable files, and directories without manifests.
pub fn read(path: &Path, stdin: &mut dyn Read) -> Result<Vec<File>, FileError> {
    if path == Path::new("-") {
        let name = "standard input".to_owned();
        let mut text = String::new();
        return match stdin.read_to_string(&mut text) {
            Ok(_) => Ok(vec![File { name, text }]),
            Err(source) => Err(FileError::Unreadable { path: name, source }),
        };
    }
    if !path.is_dir() {
        return read_file(path).map(|file| vec![file]);
    }
    let manifests = manifests_in(path).map_err(|source| FileError::Unreadable { path: path.display().to_string(), source })?;
    if manifests.is_empty() {
        return Err(FileError::Empty { path: path.display().to_string() });
    }
    manifests.iter().map(|path| read_file(path)).collect()
}

fn read_file(path: &Path) -> Result<File, FileError> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(File { name, text }),
        Err(source) => Err(FileError::Unreadable { path: name, source }),
    }
}

fn manifests_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut manifests = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
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
        match read(path, stdin) {
            Ok(files) => {
                for file in files {
                    match manifest::read(&file.name, &file.text) {
                        Ok(read) => objects.extend(read),
                        Err(faults) => errors.extend(faults.iter().map(ToString::to_string)),
                    }
                }
            }
            Err(error) => errors.push(error.to_string()),
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
        for (name, text) in [("b.yaml", "2"), ("a.yml", "1"), ("c.txt", "3")] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let texts: Vec<String> = read(&folder, &mut std::io::empty()).unwrap().into_iter().map(|file| file.text).collect();
        assert_eq!(texts, ["1", "2"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn standard_input_is_read_as_a_file() {
        let read = read(Path::new("-"), &mut "kind: Pod".as_bytes()).unwrap();
        assert_eq!(read, [File { name: "standard input".to_owned(), text: "kind: Pod".to_owned() }]);
    }
}
