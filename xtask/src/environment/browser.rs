//! A browser for the tests of pages: the one that is installed, or Debian's Chromium, unpacked into the cache without being installed.

use super::lock;
use crate::shell;
use anyhow::{Context, Result, bail};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable by which tests find it.
pub(crate) const VARIABLE: &str = "WHITTLE_BROWSER";
/// Names by which a browser that can print its document is called.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// The packages that are wanted, even if they are installed: Chromium without windows, what it has in common with the other one, and
/// letters.
const PACKAGES: [&str; 3] = ["chromium-headless-shell", "chromium-common", "fonts-dejavu-core"];
/// The program in the first of them.
const PROGRAM: &str = "usr/lib/chromium/chromium-headless-shell";
/// What must be the system's own: a second C library beside the loader of another would end every program.
const OF_THE_SYSTEM: [&str; 2] = ["libc6", "libc-bin"];
/// How long apt may take for one step, in seconds.
const STEP_MAX: &str = "90";
/// Where libraries are in packages.
const LIBRARIES: [&str; 2] = ["lib", "usr/lib"];

/// A browser, or `None` where there is none and none can be had, which is said on stderr.
///
/// # Errors
/// `WHITTLE_BROWSER` names one that does not work.
pub(super) fn set_up(root: &Path, cache: &Path) -> Result<Option<PathBuf>> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from) {
        if works(&named) {
            return Ok(Some(named));
        }
        bail!("{VARIABLE}={} does not tell its version: name a Chromium that works, or unset the variable", named.display());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let candidates = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    if let Some(installed) = candidates.filter(|file| file.is_file()).find(|file| works(file)) {
        return Ok(Some(installed));
    }
    let program = cache.join("browser/chromium");
    let _lock = lock(cache, "browser")?;
    if works(&program) {
        return Ok(Some(program));
    }
    match unpacked(root, &cache.join("browser"), &program) {
        Ok(()) => Ok(Some(program)),
        Err(error) => {
            let reason = format!("{error:#}");
            // The last line of what apt said is the reason.
            let last = reason.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            eprintln!("no browser, so that tests of pages are skipped: Debian's Chromium cannot be had: {last}");
            Ok(None)
        }
    }
}

/// Whether it starts.
fn works(program: &Path) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Downloads Chromium and those of its dependencies that are not installed, with the rights of any user, and unpacks them.
fn unpacked(root: &Path, folder: &Path, program: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("{} cannot be removed", folder.display()))?;
    }
    let (downloads, files) = (folder.join("downloads"), folder.join("files"));
    for made in [&downloads, &files, &folder.join("lists/partial"), &folder.join("apt/archives/partial")] {
        std::fs::create_dir_all(made).with_context(|| format!("{} cannot be made", made.display()))?;
    }
    eprintln!("unpacking Debian's Chromium into {} (about a minute, once)", folder.display());
    // The system's lists may be missing, as in images, or name files that are gone.
    let system = Apt { root, folder, own_lists: false };
    if system.download(&downloads).is_err() {
        let own = Apt { own_lists: true, ..system };
        shell::read(own.command(root, &["update"]))?;
        own.download(&downloads)?;
    }
    for package in std::fs::read_dir(&downloads)? {
        let package = package?.path();
        shell::read(shell::command(root, "dpkg", &["-x", &package.to_string_lossy(), &files.to_string_lossy()]))?;
    }
    for spent in [&downloads, &folder.join("apt"), &folder.join("lists")] {
        std::fs::remove_dir_all(spent).with_context(|| format!("{} cannot be removed", spent.display()))?;
    }
    std::fs::write(program, script(&files)?)?;
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))?;
    if !works(program) {
        bail!("{} does not start", program.display());
    }
    Ok(())
}

/// apt, with whatever it writes in a folder of ours.
struct Apt<'a> {
    root: &'a Path,
    folder: &'a Path,
    own_lists: bool,
}

impl Apt<'_> {
    fn command(&self, directory: &Path, arguments: &[&str]) -> Command {
        let mut command = shell::command(directory, "timeout", &[STEP_MAX, "apt-get", "-qq", "-y"]);
        let folder = self.folder.display();
        command.args([
            "-o",
            "Debug::NoLocking=1",
            "-o",
            "Acquire::http::Timeout=15",
            "-o",
            "Acquire::Retries=0",
            "-o",
            "APT::Sandbox::User=",
        ]);
        command.arg("-o").arg(format!("Dir::Cache={folder}/apt"));
        if self.own_lists {
            command.arg("-o").arg(format!("Dir::State::lists={folder}/lists"));
        }
        command.args(arguments);
        command
    }

    /// Downloads what is not installed.
    fn download(&self, into: &Path) -> Result<()> {
        let install = ["install", "--print-uris", "--reinstall", "--no-install-recommends"];
        let told = shell::read(self.command(self.root, &[&install[..], &PACKAGES].concat()))?;
        let missing: Vec<&str> = missing(&told).filter(|name| !OF_THE_SYSTEM.contains(name)).collect();
        shell::read(self.command(into, &[&["download"], missing.as_slice()].concat()))?;
        Ok(())
    }
}

/// The packages of lines such as `'http://…/libfoo1_1.0_amd64.deb' libfoo1_1.0_amd64.deb 4711 SHA256:…`.
fn missing(told: &str) -> impl Iterator<Item = &str> {
    told.lines().filter(|line| line.starts_with('\'')).filter_map(|line| line.split(' ').nth(1)?.split('_').next())
}

/// Starts the program with the libraries and fonts that were unpacked.
fn script(files: &Path) -> Result<String> {
    let mut folders = Vec::new();
    for parent in LIBRARIES.map(|parent| files.join(parent)) {
        let Ok(found) = std::fs::read_dir(&parent) else { continue };
        for found in found {
            let found = found?.path();
            if found.to_string_lossy().ends_with("-linux-gnu") {
                folders.extend([found.display().to_string(), found.join("pulseaudio").display().to_string()]);
            }
        }
    }
    let (libraries, root) = (folders.join(":"), files.display());
    let libraries = if libraries.is_empty() { String::new() } else { format!("LD_LIBRARY_PATH='{libraries}' ") };
    Ok(format!("#!/bin/sh\n{libraries}FONTCONFIG_SYSROOT='{root}' exec '{root}/{PROGRAM}' \"$@\"\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_those_that_apt_would_download() {
        let told = "Reading package lists...\n'http://deb.debian.org/pool/liba1_1%3a2.0_amd64.deb' liba1_1%3a2.0_amd64.deb 1 SHA256:0\n\
                    'http://deb.debian.org/pool/libc6_2.36_amd64.deb' libc6_2.36_amd64.deb 2 SHA256:0\n";
        assert_eq!(missing(told).collect::<Vec<_>>(), ["liba1", "libc6"]);
        assert_eq!(missing("").count(), 0);
    }
}
