use super::*;

fn m5_large() -> Variables {
    BTreeMap::from([
        ("vcpus", Value::Int(2)),
        ("memory_mib", Value::Int(8192)),
        ("default_enis", Value::Int(3)),
        ("ips_per_eni", Value::Int(10)),
        ("max_pods", Value::Int(29)),
        ("instance_type", Value::Text("m5.large".to_owned())),
    ])
}

fn value(text: &str) -> Result<i64, ExpressionError> {
    Expression::parse(text)?.number(&m5_large())
}

/// What is no expression, or none whose types fit: no value of a variable would help.
#[track_caller]
fn refused(text: &str) -> String {
    match Expression::parse(text) {
        Ok(expression) => panic!("{text} is taken: {expression:?}"),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check_all(cases: &[(&str, i64)]) {
    for (text, expected) in cases {
        assert_eq!(value(text), Ok(*expected), "{text}");
    }
}

/// The examples of Karpenter's documentation.
#[test]
fn documented_formulas_have_the_values_of_karpenter() {
    check_all(&[
        ("((default_enis - 1) * (ips_per_eni - 1)) + 2", 20),
        ("min(250, ((default_enis - 1) * (ips_per_eni - 1)) * 16 + 2)", 250),
        ("min(110, max_pods)", 29),
        ("max(60, vcpus * 30)", 60),
        ("max(vcpus, 60.5)", 60),
        ("min(110.5, max_pods)", 29),
        ("11 * max_pods + 255", 574),
        ("max(100, memory_mib / 64)", 128),
        ("double(memory_mib) * 0.5", 4096),
        ("instance_type == \"m5.large\" ? vcpus * 2 : vcpus", 4),
    ]);
}

#[test]
fn numerals_are_written_as_in_cel() {
    check_all(&[
        ("0x1F", 31),
        ("-0xa + 11", 1),
        ("007", 7),
        (".5 * 4.0", 2),
        ("1.5e1", 15),
        ("25E-1 * 2.0", 5),
        ("-9223372036854775808", i64::MIN),
        ("-0x8000000000000000", i64::MIN),
        ("- 5 + 6", 1),
        ("--vcpus", 2),
        ("1--1", 2),
    ]);
    for overflowing in ["9223372036854775808", "0x8000000000000000", "--9223372036854775809", "1e400", "-9223372036854775809"] {
        assert_eq!(Expression::parse(overflowing), Err(ExpressionError::Overflow), "{overflowing}");
    }
    for unknown in ["1.", "1.x", "0x", "0xg", "1e", "1e+", "5u", "0x1FU", "1_000", "0b1", "."] {
        assert!(matches!(Expression::parse(unknown), Err(ExpressionError::Syntax { .. })), "{unknown}");
    }
}

#[test]
fn comments_and_blanks_are_left_out() {
    check_all(&[("// pods\n\tvcpus // of all\r\n * 2 //", 4), ("\u{c}vcpus/2", 1), ("vcpus //2", 2)]);
    for nothing in ["", " \n", "// vcpus", "\u{a0}1"] {
        assert!(Expression::parse(nothing).is_err(), "{nothing:?}");
    }
}

#[test]
fn texts_have_escapes_unless_they_are_raw() {
    check_all(&[
        (r#"size("a\"b")"#, 3),
        (r"size('\\\'\n\t\a\b\f\v\r\?\`')", 11),
        (r"size(r'\n')", 2),
        (r#"size(R"\")"#, 1),
        (r"size('\x41\u00e9\U0001F600\101')", 4),
        (r"'\x41\101' == 'AA' ? 1 : 2", 1),
        ("size('\u{e9}\u{1f600}')", 2),
        ("size('')", 0),
    ]);
    for broken in
        [r"size('\q')", r"size('\x4')", r"size('\u+041')", r"size('\ud800')", r"size('\477')", "size('a\nb')", "size('a", r"size('\')"]
    {
        assert!(matches!(Expression::parse(broken), Err(ExpressionError::Syntax { .. })), "{broken}");
    }
    assert!(refused("size('''a''')").contains("three quotes"));
}

#[test]
fn lists_are_searched_measured_joined_and_indexed() {
    check_all(&[
        ("instance_type in ['m5.large', 'm5.xlarge',] ? 1 : 2", 1),
        ("vcpus in [4, 8] || vcpus in [] ? 1 : 2", 2),
        ("[10, 20, 30][vcpus]", 30),
        ("[1.5, 2.5][1] * 2.0", 5),
        ("size([1, 2]) + ['a'].size() + size([])", 3),
        ("size([1] + [] + [2, 3])", 3),
        ("[1, 2] == [1] + [2] ? 1 : 2", 1),
        ("(vcpus > 2 ? [] : [7])[0]", 7),
    ]);
    assert_eq!(value("[1, 2][vcpus]"), Err(ExpressionError::NoSuchItem { index: 2, count: 2 }));
    assert_eq!(value("[1, 2][-1]"), Err(ExpressionError::NoSuchItem { index: -1, count: 2 }));
}

#[test]
fn texts_are_matched_and_made_of_numbers() {
    check_all(&[
        (r"instance_type.matches('^m[5-7]\\.') ? 1 : 2", 1),
        (r"matches(instance_type, r'^c\d') ? 1 : 2", 2),
        ("instance_type.matches('larg') ? 1 : 2", 1),
        ("string(vcpus) + 'x' == '2x' && string(true) == 'true' && string('a') == 'a' ? 1 : 2", 1),
        ("int('-12') + int(' 3'.contains(' ') ? '3' : '4')", -9),
        ("double('1.5') * 2.0", 3),
        ("instance_type.startsWith('m5') && instance_type.endsWith('large') && instance_type.contains('.') ? 1 : 2", 1),
    ]);
    assert!(refused("instance_type.matches('(') ? 1 : 2").starts_with("the pattern \"(\" of matches() cannot be used: "));
    assert!(refused(r"instance_type.matches('((a{500}){500}){500}') ? 1 : 2").contains("cannot be used"));
    assert!(matches!(value("instance_type.matches('(' + '') ? 1 : 2"), Err(ExpressionError::Pattern { .. })));
    assert_eq!(value("int(instance_type)").unwrap_err().to_string(), "\"m5.large\" is not an int of 64 bits");
    assert_eq!(value("double('')").unwrap_err().to_string(), "\"\" is not a double");
}

/// Karpenter's environment checks types first, also of parts that are never evaluated.
#[test]
fn types_are_checked_before_anything_is_evaluated() {
    for (text, said) in [
        ("vcpus * 1.5", "* takes two ints or two doubles, not int and double: convert one with int() or double()"),
        ("true ? 1 : 2.0", "? : takes two values of one type, not int and double: convert one with int() or double()"),
        ("vcpus > 0 ? 1 : 'a'", "? : takes two values of one type, not int and string"),
        ("vcpus ? 1 : 2", "? : takes a bool before it, not int"),
        ("vcpus > 1.5 ? 1 : 2", "> takes two ints, doubles, strings or bools, not int and double: convert one with int() or double()"),
        ("vcpus == 2.0 ? 1 : 2", "== takes two values of one type, not int and double: convert one with int() or double()"),
        ("1 < 2 < 3 ? 1 : 2", "< takes two ints, doubles, strings or bools, not bool and int"),
        ("true || 1 ? 1 : 2", "|| takes two bools, not bool and int"),
        ("false && 'a' ? 1 : 2", "&& takes two bools, not bool and string"),
        ("5.0 % 2.0", "% takes two ints, not double and double"),
        ("size('a' - 'b')", "- takes two ints or two doubles, not string and string"),
        ("size(['a'] + [1])", "+ takes two ints, doubles, strings or lists, not list of string and list of int"),
        ("[1] < [2] ? 1 : 2", "< takes two ints, doubles, strings or bools, not list of int and list of int"),
        ("-'a'", "- takes an int or a double, not string"),
        ("!1 ? 1 : 2", "! takes a bool, not int"),
        ("instance_type in [1] ? 1 : 2", "in takes a value and a list of its type, not string and list of int"),
        ("1 in 1 ? 1 : 2", "in takes a value and a list of its type, not int and int"),
        ("[][0]", "[ ] takes a list with items and an int, not empty list and int"),
        ("instance_type[0]", "[ ] takes a list with items and an int, not string and int"),
        ("size(1)", "size() takes a string or a list, not int"),
        ("size(string(1.5))", "string() takes an int, a bool or a string, not double"),
        ("min('a', 'b')", "min() takes two numbers, not string and string"),
        ("int(true)", "int() takes an int, a double or a string, not bool"),
        ("instance_type.matches(5) ? 1 : 2", "matches() takes strings, not string and int"),
    ] {
        assert_eq!(refused(text), said, "{text}");
    }
    assert_eq!(refused("[1, 2]"), "the result is a list, not a number");
    assert_eq!(refused("vcpus > 1"), "the result is a boolean, not a number");
}

#[test]
fn what_is_not_supported_is_named() {
    for (text, said) in [
        ("[1, 2].exists(x, x > 1) ? 1 : 2", "character 15: there is no function exists: use one of min, max, int, "),
        ("timestamp('2026-01-01T00:00:00Z')", "character 11: there is no function timestamp: "),
        ("{'m5': 1}['m5']", "character 1: maps are not supported"),
        ("5u", "character 2: unsigned numbers are not supported"),
        ("[1, 'a'][0]", "the items of a list are ints, doubles, strings or bools, all of one type"),
        ("[[1]][0]", "the items of a list are ints, doubles, strings or bools, all of one type"),
        ("max(1, 2, 3)", "max is written max(a, b)"),
        ("min(1)", "min is written min(a, b)"),
        ("vcpus.min(2)", "min is written min(a, b)"),
        ("startsWith(instance_type, 'm5') ? 1 : 2", "startsWith is written text.startsWith(part)"),
        ("instance_type.size", "expected \"(\""),
        ("null", "unknown variable \"null\""),
        ("size(b'a')", "unknown variable \"b\""),
    ] {
        let error = refused(text);
        assert!(error.contains(said), "{text}: {error}");
    }
}

/// Characters are counted, not bytes.
#[test]
fn an_error_names_the_character() {
    assert_eq!(
        refused("size('\u{e9}') + * 2"),
        "the expression does not parse at character 13: expected a number, a text, a list, a variable or a parenthesis"
    );
    assert_eq!(refused("1 2"), "the expression does not parse at character 3: this is not expected here");
}

#[test]
fn a_part_that_decides_makes_up_for_one_that_fails() {
    check_all(&[
        ("1 / 0 > 1 || true ? 1 : 2", 1),
        ("true || 1 / 0 > 1 ? 1 : 2", 1),
        ("1 / 0 > 1 && false ? 1 : 2", 2),
        ("false || 1 / 0 > 1 || true ? 1 : 2", 1),
    ]);
    for undecided in ["1 / 0 > 1 || false ? 1 : 2", "1 / 0 > 1 && true ? 1 : 2"] {
        assert_eq!(value(undecided), Err(ExpressionError::DivisionByZero), "{undecided}");
    }
}

#[test]
fn numbers_never_wrap() {
    for text in [
        "9223372036854775807 + vcpus",
        "-9223372036854775808 - 1",
        "-9223372036854775808 / -1",
        "-9223372036854775808 % -1",
        "-(-9223372036854775808)",
        "4611686018427387904 * vcpus",
        "int(1e19)",
        "9.3e18",
        "-9.3e18",
        "int(9223372036854775808.0)",
    ] {
        assert_eq!(value(text), Err(ExpressionError::Overflow), "{text}");
    }
    check_all(&[("int(-9223372036854775808.0)", i64::MIN), ("int(-2.9)", -2), ("-7 / 2", -3), ("-7 % 2", -1)]);
    for text in ["0.0 / 0.0", "1.0 / 0.0", "0.0 / 0.0 < 1.0 ? 1 : 2", "min(0.0 / 0.0, 1.0) + 0.0 / 0.0", "double('inf')"] {
        assert_eq!(value(text), Err(ExpressionError::NotFinite), "{text}");
    }
}

/// Length bounds the time of evaluation, nesting the stack.
#[test]
fn length_and_nesting_are_bounded() {
    let sum = |count: usize| vec!["1"; count].join("+");
    let longest = sum(LENGTH_MAX.div_ceil(2));
    assert_eq!(value(&longest), Ok(i64::try_from(LENGTH_MAX.div_ceil(2)).unwrap()));
    let error = refused(&sum(LENGTH_MAX));
    assert!(error.ends_with("has 8191 bytes: at most 4096 are read"), "{error}");
    assert_eq!(value(&format!("{}1{}", "(".repeat(30), ")".repeat(30))), Ok(1));
    let conditions = vec!["true ? 1 : "; 60].concat() + "2";
    assert_eq!(value(&conditions), Ok(1));
    let disjunction = vec!["false"; 500].join("||") + " ? 1 : 2";
    assert_eq!(value(&disjunction), Ok(2));
    for opening in ["(", "[", "-", "!", "min(", "true ? 1 : ", "[0][", "1 + (", "-(", "string("] {
        let nested = opening.repeat(LENGTH_MAX / opening.len());
        let error = refused(&nested);
        assert!(error.ends_with("nested too deeply"), "{opening}: {error}");
    }
    let methods = "'a'".to_owned() + &".size()".repeat(500);
    assert_eq!(refused(&methods), "size() takes a string or a list, not int");
}

/// What people paste, cut off and put together in every way: an error or a number, and never a panic.
#[test]
fn no_text_breaks_parsing_or_evaluation() {
    // Between tildes.
    const PARTS: &str = "~ ~\n~\0~\u{a0}~\u{e9}~\u{1f600}~0~0x~1.~.5~1e400~-~!~(~)~[~]~[,]~{~?~:~,~.~&&~||~|~==~<~in\
        ~'~\"~'''~r'~'\\~\\x~\\u12~//~/~%\
        ~vcpus~vcpus/0~instance_type~[1][~min(~size(~.size(~.matches('(')~int('~true~b'x'~5u~9223372036854775807~-9223372036854775808";
    let parts: Vec<&str> = PARTS.split('~').collect();
    let variables = m5_large();
    let whole = "min(110, [0x1F, 2][vcpus - 1] * 2) + (instance_type.matches(r'^m\\d') ? size('\\u00e9\u{1f600}') : int('7')) // end";
    assert!(value(whole).is_ok(), "{:?}", value(whole));
    let starts = whole.char_indices().map(|(at, _)| whole[at..].to_owned());
    let ends = whole.char_indices().map(|(at, _)| whole[..at].to_owned());
    let without = whole.char_indices().map(|(at, letter)| whole[..at].to_owned() + &whole[at + letter.len_utf8()..]);
    let pairs = parts.iter().flat_map(|a| parts.iter().map(move |b| format!("{a}{b}")));
    let joined = pairs.flat_map(|pair| parts.iter().map(move |c| format!("{pair}{c}")));
    for text in starts.chain(ends).chain(without).chain(joined) {
        if let Ok(expression) = Expression::parse(&text) {
            // A number or an error; what matters is that there is an answer.
            let _ = expression.number(&variables);
        }
    }
}

/// A caller may lack a variable, or have another type of it.
#[test]
fn variables_that_do_not_fit_are_errors() {
    let parsed = Expression::parse("vcpus + 1").unwrap();
    assert_eq!(parsed.number(&Variables::new()), Err(ExpressionError::UnknownVariable("vcpus".to_owned())));
    let text = Variables::from([("vcpus", Value::Text("2".to_owned()))]);
    assert!(matches!(parsed.number(&text), Err(ExpressionError::Types(_))));
    assert_eq!(Expression::parse("vcpus").unwrap().number(&text), Err(ExpressionError::NotANumber("text")));
}
