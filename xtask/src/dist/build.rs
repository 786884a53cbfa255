//! Builds the binaries of a release for one architecture.

use super::Architecture;
use crate::artifacts::{self, FUNCTIONS};
use crate::environment::{self, Arm64};
use crate::paths::Paths;
use crate::{image, shell, template};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command, and the package that it is in.
pub(super) const COMMAND: &str = "whittle";
const COMMAND_PACKAGE: &str = "whittle-cli";

/// What was built for one architecture.
pub(super) struct Binaries {
    /// Functions' names and their programs.
    pub(super) functions: Vec<(&'static str, PathBuf)>,
    pub(super) command: PathBuf,
    pub(super) watcher: PathBuf,
}

/// The packages of all artefacts.
pub(super) fn packages() -> Vec<String> {
    let own = FUNCTIONS.iter().map(|name| format!("whittle-{name}"));
    own.chain([COMMAND_PACKAGE.to_owned(), image::BINARY.to_owned()]).collect()
}

/// The features of the functions' packages with which they become programs.
pub(super) fn features() -> String {
    FUNCTIONS.iter().map(|name| format!("whittle-{name}/lambda")).collect::<Vec<_>>().join(",")
}

/// Builds everything for one architecture.
pub(super) fn everything(root: &Path, target: &Path, architecture: Architecture) -> Result<Binaries> {
    let builder = Builder::new(root, target, architecture)?;
    builder.functions()?;
    let command = builder.command()?;
    let watcher = builder.watcher()?;
    let functions = FUNCTIONS.iter().map(|name| (*name, builder.output(name))).collect();
    Ok(Binaries { functions, command, watcher })
}

struct Builder<'a> {
    root: &'a Path,
    target: &'a Path,
    architecture: Architecture,
    /// The Python environment with cargo-lambda.
    sam: PathBuf,
    /// Compilers, where the ordinary ones are for another architecture.
    foreign: Option<Arm64>,
    /// The compiler's.
    flags: Vec<String>,
}

impl<'a> Builder<'a> {
    fn new(root: &'a Path, target: &'a Path, architecture: Architecture) -> Result<Self> {
        let foreign = match architecture {
            Architecture::X86_64 => None,
            Architecture::Arm64 => Some(environment::arm64(root)?),
        };
        Ok(Self { root, target, architecture, sam: environment::sam(root)?, foreign, flags: Paths::of(root)?.flags()? })
    }

    /// Where cargo-lambda puts a program.
    fn output(&self, name: &str) -> PathBuf {
        self.folder().join(name).join("bootstrap")
    }

    fn folder(&self) -> PathBuf {
        self.target.join(format!("lambda-{}", self.architecture.name()))
    }

    /// cargo-lambda, which links against an older glibc than this machine's.
    fn lambda(&self, arguments: &[&str]) -> Result<()> {
        let shortcut = if self.architecture == Architecture::Arm64 { "--arm64" } else { "--x86-64" };
        // What is missing would be asked of an installer of toolchains otherwise.
        let mut all = vec!["lambda", "build", "--release", shortcut, "--skip-target-check", "--locked"];
        let folder = self.folder();
        let folder = folder.to_string_lossy();
        all.extend(["--lambda-dir", &folder]);
        all.extend(arguments);
        let mut build = template::tool(self.root, &self.sam, "cargo-lambda", &all);
        artifacts::hermetic(&mut build, self.root, &self.sam)?;
        if let Some(foreign) = &self.foreign {
            build.env("RUSTC", foreign.rustc());
        }
        shell::run(build)
    }

    fn functions(&self) -> Result<()> {
        let packages: Vec<String> = FUNCTIONS.iter().map(|name| format!("whittle-{name}")).collect();
        let mut arguments: Vec<&str> = packages.iter().flat_map(|package| ["-p", package]).collect();
        let features = features();
        arguments.extend(["--features", &features]);
        self.lambda(&arguments)
    }

    /// The command, for any processor of the architecture and for distributions with an older glibc than this machine's.
    fn command(&self) -> Result<PathBuf> {
        self.lambda(&["-p", COMMAND_PACKAGE, "--bin", COMMAND, "--disable-optimizations"])?;
        Ok(self.output(COMMAND))
    }

    /// The watcher, linked statically.
    fn watcher(&self) -> Result<PathBuf> {
        let Some(foreign) = &self.foreign else {
            return image::build(self.root, self.target, &self.flags);
        };
        let triple = self.architecture.triple();
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).chain([image::STATIC]).collect();
        let arguments = ["build", "--release", "--locked", "-p", image::BINARY, "--target", triple];
        let mut build = shell::command(self.root, "cargo", &arguments);
        compile_with(&mut build, foreign, triple).env("RUSTFLAGS", flags.join(" "));
        shell::run(build)?;
        Ok(self.target.join(triple).join("release").join(image::BINARY))
    }
}

/// Names compilers for another architecture, to Cargo and to the build scripts that compile C.
fn compile_with<'a>(build: &'a mut Command, foreign: &Arm64, triple: &str) -> &'a mut Command {
    let suffix = triple.replace('-', "_");
    build
        .env("RUSTC", foreign.rustc())
        .env(format!("CARGO_TARGET_{}_LINKER", suffix.to_uppercase()), foreign.cc())
        .env(format!("CC_{suffix}"), foreign.cc())
        .env(format!("AR_{suffix}"), foreign.ar())
}
