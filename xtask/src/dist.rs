//! `cargo xtask dist`: the artefacts of a release, so that nobody needs a compiler to deploy Whittle.
//!
//! For each architecture a folder that `sam deploy` works in, the command and the watcher; and for all of them together the watcher's
//! image, a bill of materials and checksums. Nothing in them depends on the time, on this machine's paths, or on the order of files.

mod build;
mod materials;
pub(crate) mod start;
mod sums;
mod template;
mod zip;

pub(crate) use template::prebuilt;

use crate::elf::{self, Elf, Linking};
use crate::paths::Paths;
use crate::template::TEMPLATE;
use crate::{advisories, environment, image, workspace};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The newest glibc that Amazon Linux 2023 has, on which the functions run.
const GLIBC_MAX: (u32, u32) = (2, 34);
/// The names of the architectures, as Lambda has them.
pub(crate) const ARCHITECTURES: [&str; 2] = [Architecture::X86_64.name(), Architecture::Arm64.name()];
const VERSION: &str = env!("CARGO_PKG_VERSION");
const MIB: f64 = 1024.0 * 1024.0;

/// Makes the artefacts of a release
#[derive(Args)]
pub(crate) struct Dist {
    /// What the functions, the command and the watcher are for; arm64 needs compilers of Debian, which are unpacked into the cache
    #[arg(long, value_enum, default_value_t = Choice::Both)]
    arch: Choice,
    /// The folder of the artefacts; by default `dist` in the target directory. One that exists is replaced
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Also starts each function, until it asks for its first event: milliseconds and resident memory. For arm64 in an emulator, without
    /// figures
    #[arg(long)]
    measure: bool,
    /// The root certificates that the watcher trusts
    #[arg(long, default_value = "/etc/ssl/certs/ca-certificates.crt")]
    certificates: PathBuf,
}

/// Which architectures.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    #[value(name = "x86_64")]
    X86_64,
    Arm64,
    Both,
}

/// One architecture, named as Lambda does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Architecture {
    X86_64,
    Arm64,
}

impl Architecture {
    const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Arm64 => "arm64",
        }
    }

    fn triple(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    fn machine(self) -> u16 {
        match self {
            Self::X86_64 => Elf::X86_64,
            Self::Arm64 => Elf::AARCH64,
        }
    }
}

/// One line of the table.
struct Row {
    name: String,
    architecture: Architecture,
    binary: u64,
    archive: Option<u64>,
}

/// Builds, packs, writes and prints.
pub(crate) fn run(options: &Dist) -> Result<()> {
    let root = workspace::root();
    let target = workspace::target(&root)?;
    let output = std::path::absolute(options.output.clone().unwrap_or_else(|| target.join("dist")))?;
    replaceable(&output)?;
    let certificates = image::certificates(&options.certificates)?;
    let vulnerable = advisories::check(&workspace::everything(&root)?.packages)?;
    if !vulnerable.is_empty() {
        bail!("no release is made of crates with known vulnerabilities:\n{}", vulnerable.join("\n"));
    }
    let architectures: &[Architecture] = match options.arch {
        Choice::X86_64 => &[Architecture::X86_64],
        Choice::Arm64 => &[Architecture::Arm64],
        Choice::Both => &[Architecture::X86_64, Architecture::Arm64],
    };
    let mut built = Vec::new();
    for &architecture in architectures {
        built.push((architecture, build::everything(&root, &target, architecture)?));
    }
    let made = assemble(&root, &output, &built, &certificates)?;
    table(&made.rows);
    if options.measure {
        for (architecture, binaries) in &built {
            started(&root, *architecture, binaries)?;
        }
    }
    println!("\nwatcher's image: {}\n{}", made.image, output.display());
    Ok(())
}

/// What was written.
struct Made {
    rows: Vec<Row>,
    /// The digest of the watcher's image.
    image: String,
}

/// Writes all artefacts of what was built; an earlier release in the folder is replaced once the new one is complete.
fn assemble(root: &Path, output: &Path, built: &[(Architecture, build::Binaries)], certificates: &[u8]) -> Result<Made> {
    // What an interrupted run wrote is not taken for a release.
    let unfinished = sibling(output);
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished).with_context(|| format!("{} cannot be removed", unfinished.display()))?;
    }
    let mut rows = Vec::new();
    for (architecture, binaries) in built {
        rows.extend(write(root, &unfinished, *architecture, binaries)?);
    }
    let watchers: Vec<PathBuf> = built.iter().map(|(_, binaries)| binaries.watcher.clone()).collect();
    let image = image::pack(&watchers, certificates, &unfinished.join(format!("{}-{VERSION}-image", image::BINARY)))?;
    let triples: Vec<&str> = built.iter().map(|(architecture, _)| architecture.triple()).collect();
    put(&unfinished.join(format!("whittle-{VERSION}.cdx.json")), bill(root, &triples)?.as_bytes(), 0o644)?;
    sums::write(&unfinished)?;
    if output.exists() {
        std::fs::remove_dir_all(output).with_context(|| format!("{} cannot be removed", output.display()))?;
    }
    std::fs::rename(&unfinished, output).with_context(|| format!("{} cannot be made", output.display()))?;
    Ok(Made { rows, image })
}

/// The bill of materials for these targets.
fn bill(root: &Path, triples: &[&str]) -> Result<String> {
    let bill = materials::bill(root, &build::packages(), &build::features(), triples)?;
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// What CI checks of a release without building one: the bill of materials is valid.
pub(crate) fn check_bill(root: &Path) -> Result<()> {
    let file = environment::cache()?.join("materials.cdx.json");
    let triples = [Architecture::X86_64.triple(), Architecture::Arm64.triple()];
    std::fs::write(&file, bill(root, &triples)?).with_context(|| format!("{} cannot be written", file.display()))?;
    materials::validate(root, &file)
}

/// Refuses a folder with other contents, and one that cannot be written: before the build, which takes long.
fn replaceable(output: &Path) -> Result<()> {
    if output.file_name().is_none() {
        bail!("{} names no folder of its own: name one by --output", output.display());
    }
    let is_ours = output.join(sums::FILE).is_file();
    let is_empty = || output.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    if output.exists() && !is_ours && !is_empty() {
        bail!("{} exists and has no {}: it was not made by this command; name another folder by --output", output.display(), sums::FILE);
    }
    let unfinished = sibling(output);
    std::fs::create_dir_all(&unfinished)
        .with_context(|| format!("{} cannot be made: name another folder by --output", unfinished.display()))
}

/// Where artefacts are until they are complete.
fn sibling(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    output.with_file_name(name)
}

/// Writes what there is for one architecture.
fn write(root: &Path, output: &Path, architecture: Architecture, binaries: &build::Binaries) -> Result<Vec<Row>> {
    let mut rows = deployment(root, output, architecture, &binaries.functions)?;
    let paths = Paths::of(root)?;
    let programs = [(build::COMMAND, &binaries.command, Linking::Dynamic), (image::BINARY, &binaries.watcher, Linking::Static)];
    for (program, path, linking) in programs {
        let binary = checked(path, architecture, linking, &paths)?;
        put(&output.join(program_name(program, architecture)), &binary, 0o755)?;
        rows.push(Row { name: program.to_owned(), architecture, binary: binary.len() as u64, archive: None });
    }
    Ok(rows)
}

fn program_name(program: &str, architecture: Architecture) -> String {
    format!("{program}-{VERSION}-linux-{}", architecture.name())
}

/// Writes the folder that `sam deploy` works in.
fn deployment(root: &Path, output: &Path, architecture: Architecture, functions: &[(&str, PathBuf)]) -> Result<Vec<Row>> {
    let name = architecture.name();
    let deployment = output.join(format!("whittle-{VERSION}-functions-{name}"));
    let paths = Paths::of(root)?;
    let mut rows = Vec::new();
    for (function, path) in functions {
        let binary = checked(path, architecture, Linking::Dynamic, &paths)?;
        let archive = zip::of_one("bootstrap", 0o755, &binary)?;
        put(&deployment.join(format!("functions/{function}.zip")), &archive, 0o644)?;
        rows.push(Row { name: (*function).to_owned(), architecture, binary: binary.len() as u64, archive: Some(archive.len() as u64) });
    }
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} cannot be read"));
    put(&deployment.join(TEMPLATE), template::prebuilt(&read(TEMPLATE)?, name)?.as_bytes(), 0o644)?;
    put(&deployment.join("samconfig.toml"), template::settings(&read("samconfig.toml")?, VERSION, name).as_bytes(), 0o644)?;
    for file in workspace::files(root)? {
        if file.starts_with("infra/") || file == "LICENSE" || file == "CHANGELOG.md" {
            let bytes = std::fs::read(root.join(&file)).with_context(|| format!("{file} cannot be read"))?;
            put(&deployment.join(&file), &bytes, 0o644)?;
        }
    }
    Ok(rows)
}

/// What CI installs from: as a release for x86-64, with a command for this machine alone, and no watcher.
pub(crate) fn for_this_machine(root: &Path, output: &Path, functions: &[(&str, PathBuf)], command: &Path) -> Result<()> {
    if output.exists() {
        std::fs::remove_dir_all(output).with_context(|| format!("{} cannot be removed", output.display()))?;
    }
    deployment(root, output, Architecture::X86_64, functions)?;
    let binary = std::fs::read(command).with_context(|| format!("{} was not built", command.display()))?;
    put(&output.join(program_name(build::COMMAND, Architecture::X86_64)), &binary, 0o755)?;
    sums::write(output)
}

/// Reads a binary and makes sure that it runs where it is meant to, and is the same when another machine builds it.
fn checked(path: &Path, architecture: Architecture, linking: Linking, paths: &Paths) -> Result<Vec<u8>> {
    let binary = std::fs::read(path).with_context(|| format!("{} was not built", path.display()))?;
    fit(&binary, architecture, linking).map_err(|reason| anyhow::anyhow!("{}: {reason}", path.display()))?;
    paths.check(&binary).with_context(|| path.display().to_string())?;
    Ok(binary)
}

fn fit(binary: &[u8], architecture: Architecture, linking: Linking) -> Result<(), String> {
    let elf = elf::read(binary)?;
    if elf.machine != architecture.machine() {
        return Err(format!("it is for machine {}, not for {}", elf.machine, architecture.name()));
    }
    if elf.linking != linking {
        return Err(format!("it is linked {}, and should be {}", elf.linking.adverb(), linking.adverb()));
    }
    match elf.glibc {
        Some((major, minor)) if GLIBC_MAX < (major, minor) => {
            Err(format!("it needs glibc {major}.{minor}, and Amazon Linux 2023 has {}.{}", GLIBC_MAX.0, GLIBC_MAX.1))
        }
        _ => Ok(()),
    }
}

/// Writes one file, and its folder.
fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    std::fs::write(path, bytes).with_context(|| format!("{} cannot be written", path.display()))?;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?)
}

/// Starts each function and prints what it needed.
fn started(root: &Path, architecture: Architecture, binaries: &build::Binaries) -> Result<()> {
    let foreign = match architecture {
        Architecture::X86_64 => None,
        Architecture::Arm64 => Some((environment::qemu(root)?, environment::arm64(root)?.libraries)),
    };
    let emulator = foreign.as_ref().map(|(program, libraries)| (program.as_path(), libraries.as_path()));
    start::table(&binaries.functions, architecture.name(), emulator)
}

/// Prints the sizes. Exact, because they are far below 2^53.
#[allow(clippy::cast_precision_loss)]
fn table(rows: &[Row]) {
    let mib = |bytes: u64| bytes as f64 / MIB;
    println!("\nartefact          arch      binary MiB   zip MiB");
    for row in rows {
        let archive = row.archive.map_or_else(|| "-".to_owned(), |bytes| format!("{:.2}", mib(bytes)));
        println!("{:<17} {:<8} {:>11.2} {archive:>9}", row.name, row.architecture.name(), mib(row.binary));
    }
    let (binaries, archives): (u64, u64) = (rows.iter().map(|row| row.binary).sum(), rows.iter().filter_map(|row| row.archive).sum());
    println!("{:<26} {:>11.2} {:>9.2}", "all", mib(binaries), mib(archives));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::{elf, elf_needing};

    #[test]
    fn a_binary_that_would_not_run_is_refused_with_the_reason() {
        let (x86_64, arm64) = (Architecture::X86_64, Architecture::Arm64);
        assert_eq!(fit(&elf_needing(62, &["GLIBC_2.34"]), x86_64, Linking::Dynamic), Ok(()));
        assert_eq!(fit(&elf_needing(183, &["GLIBC_2.17"]), arm64, Linking::Dynamic), Ok(()));
        assert_eq!(fit(&elf(183, 1), arm64, Linking::Static), Ok(()));
        for (binary, architecture, linking, expected) in [
            (elf_needing(62, &["GLIBC_2.17"]), arm64, Linking::Dynamic, "machine 62"),
            (elf_needing(62, &["GLIBC_2.17", "GLIBC_2.35"]), x86_64, Linking::Dynamic, "needs glibc 2.35"),
            (elf(62, 3), x86_64, Linking::Static, "linked dynamically"),
            (elf(62, 1), x86_64, Linking::Dynamic, "linked statically"),
            (b"#!/bin/sh".to_vec(), x86_64, Linking::Dynamic, "no binary"),
        ] {
            let error = fit(&binary, architecture, linking).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_folder_with_other_contents_is_not_replaced() {
        let folder = std::env::temp_dir().join(format!("whittle-dist-{}", std::process::id()));
        assert!(replaceable(&folder).is_ok(), "there is none");
        std::fs::create_dir_all(&folder).expect("it can be made");
        assert!(replaceable(&folder).is_ok(), "it is empty");
        std::fs::write(folder.join("mine"), "x").expect("it can be written");
        assert!(replaceable(&folder).is_err_and(|error| error.to_string().contains("--output")));
        std::fs::write(folder.join(sums::FILE), "").expect("it can be written");
        assert!(replaceable(&folder).is_ok(), "it is of an earlier run");
        std::fs::remove_dir_all(sibling(&folder)).expect("it is ours");
        for (output, expected) in [(folder.join(".."), "names no folder"), (folder.join("mine/release"), "cannot be made")] {
            assert!(replaceable(&output).is_err_and(|error| error.to_string().contains(expected)), "{}", output.display());
        }
        std::fs::remove_dir_all(&folder).expect("it is ours");
        assert_eq!(sibling(Path::new("/a/dist")), Path::new("/a/dist.unfinished"));
    }

    /// Stands for what is built for one architecture.
    fn built(folder: &Path, architecture: Architecture) -> (Architecture, build::Binaries) {
        std::fs::create_dir_all(folder).expect("it can be made");
        let (function, watcher) = (folder.join("function"), folder.join("watcher"));
        std::fs::write(&function, elf_needing(architecture.machine(), &["GLIBC_2.30"])).expect("it can be written");
        std::fs::write(&watcher, elf(architecture.machine(), 1)).expect("it can be written");
        let functions = crate::artifacts::FUNCTIONS.iter().map(|name| (*name, function.clone())).collect();
        (architecture, build::Binaries { functions, command: function, watcher })
    }

    #[test]
    fn a_release_is_complete_and_the_same_again() {
        let folder = std::env::temp_dir().join(format!("whittle-dist-made-{}", std::process::id()));
        let output = folder.join("release");
        let built = [Architecture::X86_64, Architecture::Arm64].map(|one| built(&folder.join(one.name()), one));
        let make = || assemble(&workspace::root(), &output, &built, b"-----BEGIN CERTIFICATE-----").expect("it is made");
        let made = make();
        assert_eq!(made.rows.len(), 2 * (crate::artifacts::FUNCTIONS.len() + 2));
        let sums = std::fs::read_to_string(output.join(sums::FILE)).expect("it exists");
        for name in ["functions-arm64", "functions-x86_64"] {
            for file in
                ["template.yaml", "samconfig.toml", "functions/relay.zip", "functions/sweep.zip", "infra/watcher/stack.yaml", "LICENSE"]
            {
                assert!(sums.contains(&format!("  whittle-{VERSION}-{name}/{file}\n")), "{name}/{file} is not in {sums}");
            }
        }
        for name in [format!("whittle-{VERSION}-linux-arm64"), format!("whittle-watcher-{VERSION}-linux-x86_64")] {
            let mode = output.join(&name).metadata().expect("it exists").permissions().mode();
            assert!(mode & 0o777 == 0o755 && sums.contains(&format!("  {name}\n")), "{name}: {mode:o}");
        }
        let image = output.join(format!("whittle-watcher-{VERSION}-image/blobs")).join(made.image.replace(':', "/"));
        let index: serde_json::Value = serde_json::from_slice(&std::fs::read(image).expect("it exists")).expect("it is JSON");
        assert_eq!(index["manifests"].as_array().map(Vec::len), Some(2), "the image is for both");
        std::fs::write(output.join("old"), "x").expect("it can be written");
        make();
        assert_eq!(std::fs::read_to_string(output.join(sums::FILE)).expect("it exists"), sums);
        assert!(!output.join("old").exists() && !sibling(&output).exists());
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn a_binary_that_does_not_fit_leaves_the_earlier_release_alone() {
        let folder = std::env::temp_dir().join(format!("whittle-dist-kept-{}", std::process::id()));
        let (output, (_, binaries)) = (folder.join("release"), built(&folder.join("built"), Architecture::X86_64));
        std::fs::create_dir_all(&output).expect("it can be made");
        std::fs::write(output.join(sums::FILE), "earlier").expect("it can be written");
        let error = assemble(&workspace::root(), &output, &[(Architecture::Arm64, binaries)], b"").err().expect("it is refused");
        assert!(error.to_string().contains("not for arm64"), "{error}");
        assert_eq!(std::fs::read_to_string(output.join(sums::FILE)).expect("it exists"), "earlier");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    }
}
