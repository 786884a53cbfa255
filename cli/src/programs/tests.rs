use super::*;
use std::io::Read as _;

fn shell() -> Program {
    Program { path: "/bin/sh".into(), name: "aws", fixed: Vec::new(), limit: None, largest: LARGEST, silent: false }
}

#[test]
fn an_answer_is_parsed_and_nothing_is_null() {
    assert_eq!(shell().json(&["-c", r#"echo '{"a": [1]}'"#]).unwrap(), serde_json::json!({"a": [1]}));
    assert_eq!(shell().json(&["-c", "echo"]).unwrap(), Value::Null);
    let error = shell().json(&["-c", "echo '<html>'"]).unwrap_err();
    assert!(matches!(&error, ProgramError::NotJson { command, .. } if command.contains("<html>")), "{error}");
}

#[test]
fn an_error_has_the_words_of_the_program_and_the_command() {
    let error = shell().text(&["-c", "echo 'An error occurred (AccessDenied)' >&2; exit 254"]).unwrap_err();
    assert!(error.says("(AccessDenied)") && !error.says("NotFound"));
    assert!(error.to_string().contains("from: aws -c"), "{error}");
    let silent = shell().text(&["-c", "exit 3"]).unwrap_err();
    assert!(silent.to_string().starts_with("aws ended with exit status: 3"), "{silent}");
    let missing = shell().at("/nonexistent/aws").text(&[]).unwrap_err();
    assert!(missing.to_string().contains("install it") && !missing.says("install"), "{missing}");
}

#[test]
fn an_aws_that_is_too_old_is_told_in_one_line() {
    for words in [
        "usage: aws [options]\n\naws: error: argument operation: Invalid choice, valid choices are:\n\na | b\n",
        "usage: aws [options]\n\naws: error: argument command: Invalid choice, valid choices are:\n\na | b\n",
        "aws: [ERROR]: argument operation: Found invalid choice 'describe-access-entry'\n",
        "usage: aws [options]\n\nUnknown options: --kubernetes-groups, a\n",
    ] {
        let script = format!("printf '%s' \"{words}\" >&2; exit 252");
        let told = |program: Program| match program.text(&["-c", &script]) {
            Err(ProgramError::Failed { said, .. }) => said,
            other => panic!("{other:?}"),
        };
        assert_eq!(told(shell()), TOO_OLD, "{words}");
        assert_eq!(told(Program { name: "kubectl", ..shell() }), words.trim(), "other programs speak for themselves");
    }
}

#[test]
fn credentials_that_aws_does_not_take_are_told_with_how_to_sign_in() {
    let told = |program: Program, words: &str| match program.text(&["-c", &format!("echo '{words}' >&2; exit 254")]) {
        Err(ProgramError::Failed { said, .. }) => said,
        other => panic!("{other:?}"),
    };
    for code in ["ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "UnrecognizedClientException"] {
        let words = format!("An error occurred ({code}) when calling the DescribeStacks operation: it is not valid");
        assert_eq!(told(shell(), &words), format!("{words}\n  ({SIGN_IN})"));
        assert_eq!(told(Program { name: "kubectl", ..shell() }, &words), words);
    }
    for words in ["An error occurred (AccessDenied) when calling X: no", "An error occurred (ValidationError): Stack a does not exist"] {
        assert_eq!(told(shell(), words), words, "whoever asks is known");
    }
}

#[test]
fn of_many_questions_at_once_each_is_answered_and_few_programs_run() {
    let folder = std::env::temp_dir().join(format!("whittle-at-once-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let place = folder.display();
    // Each says how many there are while it is there itself.
    let script = format!("touch {place}/$$; ls {place} | wc -l; rm {place}/$$");
    let count = || String::from_utf8(shell().text(&["-c", &script]).unwrap()).unwrap().trim().parse::<usize>().unwrap();
    let counts: Vec<usize> = std::thread::scope(|threads| {
        let asked: Vec<_> = (0..60).map(|_| threads.spawn(count)).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect()
    });
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(counts.iter().all(|count| (1..=AT_ONCE).contains(count)), "{counts:?}");
}

#[test]
fn programs_that_cannot_be_run_or_are_late_keep_nobody_waiting() {
    for _ in 0..=AT_ONCE {
        assert!(shell().at("/nonexistent/aws").text(&[]).is_err());
        assert!(shell().within(Duration::from_millis(1)).text(&["-c", "exec sleep 60"]).is_err());
    }
    assert!(shell().text(&["-c", "echo"]).is_ok(), "each has left its place");
}

#[test]
fn input_larger_than_a_pipe_is_fed_beside_reading() {
    let input = "x".repeat(1 << 20);
    assert_eq!(shell().feed(&["-c", "cat"], &input).unwrap().len(), input.len());
    assert_eq!(shell().feed(&["-c", "echo done"], &input).unwrap(), b"done\n", "input that nobody reads is no failure");
}

#[test]
fn fixed_options_follow_and_are_shown() {
    let program = Program::new("kubectl", "WHITTLE_NONE", [("--context", Some("a b")), ("--kubeconfig", None), ("", None)]);
    assert_eq!(program.shown(&["get", "nodes"]), "kubectl get nodes --context 'a b'");
    assert_eq!(program.at("/bin/echo").text(&["get"]).unwrap(), b"get --context a b\n");
}

#[test]
fn log_lines_of_a_client_library_are_left_out_unless_there_is_nothing_else() {
    let log = "E1126 10:17:42.495925    5379 memcache.go:381] \"Couldn't get current server API group list\"";
    assert_eq!(without_log(&format!("{log}\n{log}\nUnable to connect to the server\n")), "Unable to connect to the server");
    assert_eq!(without_log(&format!("{log}\n")), log);
    assert_eq!(without_log("Error from server (NotFound)\n"), "Error from server (NotFound)");
}

#[test]
fn a_program_that_gives_no_answer_in_time_is_ended() {
    let within = |milliseconds| shell().within(Duration::from_millis(milliseconds));
    let begun = Instant::now();
    for script in ["exec sleep 60", "sleep 60 & wait", "exec >&- 2>&-; exec sleep 60"] {
        let error = within(200).json(&["-c", script]).unwrap_err();
        assert!(
            matches!(error, ProgramError::Late { .. }) && error.to_string().starts_with("aws gave no answer within 0 s"),
            "{script}: {error}"
        );
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let large = "head -c 3000000 /dev/zero | tr '\\0' x; echo words >&2; exit 3";
    let words = within(60_000).answer(&["-c", large]).unwrap();
    assert_eq!((words.text.len(), words.said.as_str(), words.failed()), (3_000_000, "words", true));
    assert_eq!(within(60_000).json(&["-c", "echo 1"]).unwrap(), 1);
    // Also one that does not read what it is given.
    let error = within(200).feed(&["-c", "exec sleep 60"], &"x".repeat(1 << 20)).unwrap_err();
    assert!(matches!(error, ProgramError::Late { .. }), "{error}");
}

#[test]
fn a_program_that_prints_without_end_is_ended_and_named_with_the_limit() {
    let begun = Instant::now();
    for program in [shell().within(Duration::from_secs(60)), shell().unlimited()] {
        let program = Program { largest: 1 << 20, ..program };
        for script in ["exec yes", "exec yes >&2", "yes & exec sleep 300"] {
            let error = program.json(&["-c", script]).unwrap_err();
            assert!(matches!(error, ProgramError::TooMuch { .. }), "{script}: {error}");
            let said = error.to_string();
            assert!(
                said.starts_with("aws printed too much: no more than 1 MiB are read of one answer") && said.contains("from: aws -c"),
                "{said}"
            );
        }
        let most = program.text(&["-c", "head -c 1048576 /dev/zero"]).unwrap();
        assert_eq!(most.len(), 1 << 20);
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn what_is_read_at_once_is_bounded_together_and_free_again_afterwards() {
    let held = AtomicU64::new(0);
    let read = |length: u64, largest: u64| read_within(io::repeat(b'a').take(length), largest, &held, 1 << 20);
    assert_eq!(read(1 << 20, u64::MAX).unwrap().len(), 1 << 20);
    let other = held.fetch_add(1 << 19, Ordering::Relaxed);
    for (length, largest) in [((1 << 19) + 1, u64::MAX), (1001, 1000), (u64::MAX, u64::MAX)] {
        assert_eq!(read(length, largest).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }
    assert_eq!(read(1 << 19, 1 << 19).unwrap().len(), 1 << 19);
    assert_eq!((other, held.load(Ordering::Relaxed)), (0, 1 << 19));
}

#[test]
fn every_program_ends_in_time_unless_it_is_to_wait() {
    let aws = Program::aws(None, None);
    assert_eq!((aws.limit, aws.unlimited().limit), (Some(LIMIT), None));
    assert_eq!(Program::kubectl(None, None).limit, Some(LIMIT));
}
