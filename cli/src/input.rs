//! Manifests from files, directories and standard input.

use std::io::Read;
use std::path::{Path, PathBuf};
use whittle_api::manifest::{self, Located, Object};

/// Reads all objects of `-f` arguments, in their order: a file, a directory (its `*.yaml` and `*.yml`, by name), or `-`
/// for `stdin`.
///
/// # Errors
/// Every fault of every file, one line each; nothing is returned when there is any.
pub fn objects(paths: &[PathBuf], stdin: &mut dyn Read) -> Result<Vec<Located<Object>>, Vec<String>> {
    let (mut objects, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        match texts(path, stdin) {
            Ok(texts) => {
                for (name, text) in texts {
                    match manifest::read(&name, &text) {
                        Ok(read) => objects.extend(read),
                        Err(faults) => errors.extend(faults.iter().map(ToString::to_string)),
                    }
                }
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(objects) } else { Err(errors) }
}

/// Names and contents of the files that an argument means.
fn texts(path: &Path, stdin: &mut dyn Read) -> Result<Vec<(String, String)>, String> {
    let fail = |path: &Path, error: std::io::Error| format!("{}: cannot be read: {error}", path.display());
    if path == Path::new("-") {
        let mut text = String::new();
        stdin.read_to_string(&mut text).map_err(|error| fail(Path::new("standard input"), error))?;
        return Ok(vec![("standard input".to_owned(), text)]);
    }
    let files = if path.is_dir() { yaml_files(path).map_err(|error| fail(path, error))? } else { vec![path.to_owned()] };
    if files.is_empty() {
        return Err(format!("{}: there is no *.yaml or *.yml file in this directory", path.display()));
    }
    let read = |file: PathBuf| match std::fs::read_to_string(&file) {
        Ok(text) => Ok((file.display().to_string(), text)),
        Err(error) => Err(fail(&file, error)),
    };
    files.into_iter().map(read).collect()
}

fn yaml_files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
