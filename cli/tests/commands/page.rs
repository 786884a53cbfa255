//! The page of `whittle local --web` in a browser. Skipped where there is none.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names by which a browser that can print its document is called.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The browser that `WHITTLE_BROWSER` names, or one on the PATH. Without one it says that the test is skipped.
pub(super) fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("WHITTLE_BROWSER").filter(|named| !named.is_empty()) {
        let version = Command::new(&named).arg("--version").output();
        let usable = version.as_ref().is_ok_and(|version| version.status.success());
        assert!(usable, "WHITTLE_BROWSER={}: it does not tell its version: {version:?}", named.display());
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: none of {} is on the PATH, and WHITTLE_BROWSER names none", BROWSERS.join(", "));
    }
    found
}

/// The document that a browser makes of the page at an address, and what it reports.
pub(super) fn document(browser: &Path, folder: &Path, address: &str) -> (String, String) {
    document_after(4_000, browser, folder, address)
}

/// The same after so many milliseconds of the page's own time.
fn document_after(milliseconds: u32, browser: &Path, folder: &Path, address: &str) -> (String, String) {
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"])
        .arg(format!("--virtual-time-budget={milliseconds}"))
        .args(["--window-size=1600,1000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("browser").display()))
        .arg(address)
        .output()
        .unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A pod that no machine takes, with a value that would be markup: the one of its values that an API server does not judge.
const HOSTILE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: hostile}
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: example.com/room, operator: In, values: ["</p><img src=x onerror=document.title='taken'>"]}]
  containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
"#;

/// A session with a page, which ends with the test.
struct Session {
    process: Child,
    folder: PathBuf,
    address: String,
}

impl Session {
    fn new(name: &str, commands: &str, last: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("whittle-page-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hostile.yaml"), HOSTILE).unwrap();
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/local/demo");
        let mut process = Command::new(env!("CARGO_BIN_EXE_whittle"))
            .args(["local", "--web", "-f"])
            .arg(&demo)
            .arg("-f")
            .arg(folder.join("hostile.yaml"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        process.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.strip_prefix("The page of this session: ").map(str::to_owned)).unwrap();
        assert!(lines.any(|line| line.contains(last)), "no line has {last:?}");
        // What is printed later must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, folder, address }
    }

    fn document(&self, browser: &Path, wishes: &str) -> (String, String) {
        document(browser, &self.folder, &format!("{}&{wishes}", self.address))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[track_caller]
pub(super) fn check_sound((document, report): &(String, String)) {
    assert!(document.contains("data-ready=\"true\""), "the state was not shown: {report}\n{document}");
    assert!(document.contains("data-errors=\"0\""), "{report}\n{document}");
    let complaints: Vec<&str> = report.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn the_page_shows_nodes_and_quotes_hostile_text() {
    let Some(browser) = browser() else { return };
    let mut session = Session::new("shown", "scale deployment inflate --replicas 12\nadvance 2m\n", "12 of 12 running");
    let nodes = session.document(&browser, "tab=nodes&select=1");
    check_sound(&nodes);
    let (document, _) = &nodes;
    assert_eq!(document.matches(" data-node=\"default-").count(), 1, "{document}");
    for part in ["<td>us-east-1", "<td>ready</td>", "of nodepool default", "id=\"f-pods\">12<", "demo · us-east-1"] {
        assert!(document.contains(part), "{part:?} is missing: {document}");
    }
    let row = document.split("<tr ").find(|row| row.contains(" data-node=\"default-")).unwrap();
    assert!(row.split('>').next().is_some_and(|tag| tag.contains("tabindex=\"0\"")), "the keyboard reaches it: {row}");
    let (waiting, _) = session.document(&browser, "tab=waiting");
    let item = waiting.split("<div ").find(|item| item.contains("class=\"item pick\"")).unwrap();
    assert!(["tabindex=\"0\"", "role=\"button\""].iter().all(|part| item.contains(part)), "so does it here: {item}");
    for tab in ["waiting", "timeline"] {
        let shown = session.document(&browser, &format!("tab={tab}"));
        check_sound(&shown);
        let (document, _) = &shown;
        assert!(document.contains("&lt;/p&gt;&lt;img src=x onerror=document.title='taken'&gt;"), "{tab}: {document}");
        assert!(!document.contains("<img src=\"x\"") && document.contains("<title>Whittle</title>"), "{tab}: {document}");
    }
    session.address = session.address.split('#').next().unwrap_or_default().to_owned() + "#0";
    let (document, _) = session.document(&browser, "tab=nodes");
    assert!(document.contains("the token of this session is missing or wrong") && !document.contains("<tr data-node"), "{document}");
}

/// An address that leads to another one, but for the second question for the state, which gets an error.
fn failing_once(target: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (target, asked) = (target.clone(), Arc::clone(&asked));
            // A browser opens connections that it does not use yet.
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::<u8>::new(), [0_u8]);
                while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                    head.extend(byte);
                }
                let head = String::from_utf8_lossy(&head).replace("keep-alive", "close");
                if head.starts_with("GET /state") && asked.fetch_add(1, Ordering::Relaxed) == 1 {
                    let _ = stream.write_all(b"HTTP/1.1 500 Failed\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}");
                } else if let Ok(mut server) = TcpStream::connect(target) {
                    let _ = server.write_all(head.as_bytes()).and_then(|()| std::io::copy(&mut server, &mut stream));
                }
            });
        }
    });
    address
}

#[test]
fn a_server_that_is_reached_again_is_not_said_to_be_lost() {
    let Some(browser) = browser() else { return };
    let session = Session::new("again", "scale deployment inflate --replicas 12\nadvance 2m\n", "12 of 12 running");
    let (target, token) = session.address.strip_prefix("http://").and_then(|rest| rest.split_once("/#")).unwrap();
    let address = format!("http://{}/#{token}", failing_once(target.to_owned()));
    let (document, report) = document_after(12_000, &browser, &session.folder, &address);
    assert!(document.contains("demo · us-east-1"), "{report}\n{document}");
}
