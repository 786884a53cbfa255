//! `whittle completion` and `whittle man`: what shells and manuals know of the command, made from its arguments.

use crate::Cli;
use crate::printing::without_numbers;
use crate::source::files;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `whittle completion`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whittle completion bash > ~/.local/share/bash-completion/completions/whittle
  whittle completion zsh > ~/.zfunc/_whittle        (with ~/.zfunc in fpath)
  whittle completion fish > ~/.config/fish/completions/whittle.fish

Exit code: 0 if the script is printed, 1 if the output cannot be written, 2 if there is no such shell.")]
pub struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Arguments of `whittle man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whittle man ~/.local/share/man/man1 && man whittle-plan

Exit code: 0 if all pages are written, 1 if one, or the output, cannot be written.")]
pub struct ManArgs {
    /// The directory for the pages; it is made if it does not exist
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Prints the completion script of a shell.
///
/// # Errors
/// Only when `out` cannot be written.
pub fn completion(args: &CompletionArgs, out: &mut dyn Write) -> io::Result<ExitCode> {
    // The generator panics if it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "whittle", &mut script);
    out.write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for each command, and says so on `out`.
///
/// # Errors
/// Only when `out` or `err` cannot be written.
pub fn man(args: &ManArgs, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode> {
    match pages(&args.directory) {
        Ok(count) => {
            writeln!(out, "{count} pages in {}", files::shown(&args.directory))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            let error = without_numbers(&error.to_string());
            writeln!(err, "error: the pages cannot be written to {}: {error}", files::shown(&args.directory))?;
            Ok(ExitCode::from(1))
        }
    }
}

/// Writes the pages; returns how many there are.
fn pages(directory: &Path) -> io::Result<usize> {
    if directory.exists() && !directory.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is no directory: name one, which need not exist"));
    }
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), directory)?;
    let is_ours = |entry: &io::Result<std::fs::DirEntry>| {
        entry.as_ref().is_ok_and(|entry| {
            let name = entry.file_name();
            name == "whittle.1" || name.to_string_lossy().starts_with("whittle-")
        })
    };
    Ok(std::fs::read_dir(directory)?.filter(is_ours).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_help_that_lists_exit_codes_has_that_of_an_output_that_cannot_be_written() {
        fn check(command: &mut clap::Command, listed: &mut usize) {
            let help = command.render_long_help().to_string();
            if let Some(at) = help.find("Exit code") {
                let codes = help[at..].split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(codes.contains("cannot be written"), "{}: {codes}", command.get_name());
                *listed += 1;
            }
            command.get_subcommands_mut().for_each(|command| check(command, listed));
        }
        let mut listed = 0;
        check(&mut Cli::command(), &mut listed);
        assert!(listed > 25, "{listed}");
    }

    /// The commands that do something themselves.
    fn leaves(command: &clap::Command, path: &str, into: &mut Vec<(String, String)>) {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        if command.get_subcommands().next().is_none() {
            into.push((path.clone(), command.clone().render_long_help().to_string()));
        }
        command.get_subcommands().for_each(|one| leaves(one, &path, into));
    }

    #[test]
    fn every_help_has_an_example_of_its_command_and_the_exit_codes() {
        let mut helps = Vec::new();
        leaves(&Cli::command(), "", &mut helps);
        assert!(helps.len() > 25, "{}", helps.len());
        for (command, help) in helps {
            let examples = help.split_once("Examples:\n").map(|(_, rest)| rest).unwrap_or_default();
            assert!(examples.lines().any(|line| line.contains(&command)), "{command}: no example");
            assert!(help.contains("xit code"), "{command}: no exit codes");
        }
    }

    /// The first thing that a newcomer reads.
    #[test]
    fn the_short_help_says_what_whittle_is() {
        for help in [Cli::command().render_help(), Cli::command().render_long_help()] {
            assert!(help.to_string().starts_with("A node autoscaler for Amazon EKS that runs as functions\n"), "{help}");
        }
    }

    #[test]
    fn a_script_of_each_shell_knows_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut out = Vec::new();
            completion(&CompletionArgs { shell }, &mut out).unwrap();
            let script = String::from_utf8(out).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
            assert!(script.contains("detailed-exitcode"), "{shell}: options too");
        }
    }

    #[test]
    fn every_command_has_a_page() {
        let directory = std::env::temp_dir().join(format!("whittle-man-{}/new", std::process::id()));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = man(&ManArgs { directory: directory.clone() }, &mut out, &mut err).unwrap();
        let page = std::fs::read_to_string(directory.join("whittle-plan.1")).unwrap();
        let all = ["whittle.1", "whittle-compare.1", "whittle-local-run.1"].map(|name| directory.join(name).exists());
        std::fs::remove_dir_all(directory.parent().unwrap()).unwrap();
        assert_eq!((code, all), (ExitCode::SUCCESS, [true; 3]));
        assert!(page.contains("detailed\\-exitcode") && page.contains("Exit code"), "{page}");

        let directory = PathBuf::from("/dev/null/nowhere");
        let code = man(&ManArgs { directory }, &mut out, &mut err).unwrap();
        assert_eq!(code, ExitCode::from(1));
        let code = man(&ManArgs { directory: PathBuf::from("/dev/null") }, &mut out, &mut err).unwrap();
        assert_eq!(code, ExitCode::from(1));
        let err = String::from_utf8(err).unwrap();
        assert!(err.contains("cannot be written to /dev/null/nowhere") && !err.contains("os error"), "{err}");
        assert!(err.contains("cannot be written to /dev/null: it is no directory: name one"), "{err}");
    }
}
