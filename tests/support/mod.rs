//! What the integration tests share: the built broker as a child process, a raw wire client, and
//! record batches made by hand.
//!
//! With `RINGMAIN_TEST_BOOTSTRAP=HOST:PORT` set, the tests that only need *a* broker use the one
//! that listens there instead of starting ours. Pointed at Apache Kafka this tells whether a test
//! expects what Kafka does; tests that need their own process then say so and pass.
#![allow(dead_code)] // each test binary uses its own part of this module

pub mod batch;
pub mod calls;
pub mod wire;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than any start on a loaded machine takes.
const READY_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a clean stop may take.
const STOP_WAIT_MAX: Duration = Duration::from_secs(30);

pub const RINGMAIN: &str = env!("CARGO_BIN_EXE_ringmain");

/// The address of the broker that the person wants tested, if not the built one.
pub fn foreign_bootstrap() -> Option<String> {
    std::env::var("RINGMAIN_TEST_BOOTSTRAP").ok()
}

/// True, after a word on stderr, where a test cannot run against a foreign broker.
pub fn needs_own_process(test: &str) -> bool {
    let foreign = foreign_bootstrap().is_some();
    if foreign {
        eprintln!("{test}: skipped, it needs a process of its own");
    }
    foreign
}

/// A topic name that no other test uses.
pub fn unique_topic(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(
        "{prefix}-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// A directory on the disk that holds `target`: tmpfs, where `/tmp` often is, may lack O_DIRECT.
pub fn temp_dir() -> TempDir {
    TempDir::with_prefix_in("ringmain-", env!("CARGO_TARGET_TMPDIR"))
        .expect("a temporary directory")
}

/// The first two cores of the affinity mask, as `--cores` takes them; one where there is only one.
pub fn two_cores() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("Cpus_allowed_list in /proc/self/status")
        .trim();
    let cores: Vec<String> = list
        .split(',')
        .flat_map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let from: usize = from.parse().expect("a core number");
            let to: usize = to.parse().expect("a core number");
            from..=to
        })
        .take(2)
        .map(|core| core.to_string())
        .collect();
    cores.join(",")
}

/// How to start a broker. The default: two cores, free ports, a fresh data directory.
pub struct Settings {
    pub config: Option<String>,
    pub data_dir: Option<PathBuf>,
    pub listen: String,
    pub admin: String,
    pub cores: String,
    /// Put before the command line: `prlimit --memlock=…`.
    pub wrapper: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            config: None,
            data_dir: None,
            listen: "127.0.0.1:0".to_owned(),
            admin: "127.0.0.1:0".to_owned(),
            cores: two_cores(),
            wrapper: Vec::new(),
        }
    }
}

impl Settings {
    pub fn config(mut self, toml: &str) -> Self {
        self.config = Some(toml.to_owned());
        self
    }

    pub fn data_dir(mut self, dir: &Path) -> Self {
        self.data_dir = Some(dir.to_owned());
        self
    }

    pub fn listen(mut self, address: &str) -> Self {
        self.listen = address.to_owned();
        self
    }

    pub fn admin(mut self, address: &str) -> Self {
        self.admin = address.to_owned();
        self
    }

    pub fn wrapper(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// The command line over `data_dir`; the configuration file is written beside it.
    pub fn command(&self, data_dir: &Path) -> Command {
        let mut toml = self.config.clone().unwrap_or_default();
        if !toml.contains("commit.log.bytes") {
            // Quickly made, and its files are used again and again.
            toml.insert_str(0, "ringmain.commit.log.bytes = 16777216\n");
        }
        let path = data_dir.with_extension("toml");
        std::fs::write(&path, toml).expect("the configuration file is written");
        let mut command = self.command_without_config(data_dir);
        command.arg("--config").arg(path);
        command
    }

    pub fn command_without_config(&self, data_dir: &Path) -> Command {
        let mut words = self.wrapper.clone();
        words.push(RINGMAIN.to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.args(["serve", "--listen", &self.listen, "--admin", &self.admin]);
        command.args(["--cores", &self.cores]);
        command.arg("--data-dir").arg(data_dir);
        command.stdin(Stdio::null());
        command
    }

    /// Starts the built broker and waits for its ready line.
    pub fn start(self) -> Broker {
        let home = temp_dir();
        let data_dir = self
            .data_dir
            .clone()
            .unwrap_or_else(|| home.path().join("data"));
        let process = Process::spawn(self.command(&data_dir));
        Broker {
            settings: self,
            home,
            data_dir,
            process: Some(process),
            foreign: None,
        }
    }

    /// Runs a broker that is expected not to start; kills it if it does.
    pub fn run_to_end(&self, data_dir: &Path) -> Ended {
        run_to_end(self.command(data_dir))
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end, for at most ten seconds.
pub fn run_to_end(mut command: Command) -> Ended {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let stdout = drain(child.stdout.take().expect("stdout is piped"));
    let stderr = drain(child.stderr.take().expect("stderr is piped"));
    let status = wait(&mut child, Duration::from_secs(10));
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    Ended {
        code: status.and_then(|status| status.code()),
        stdout: stdout.join().expect("stdout is read"),
        stderr: stderr.join().expect("stderr is read"),
    }
}

fn drain(mut source: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = source.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A broker under test. Dropping it kills it.
pub struct Broker {
    settings: Settings,
    home: TempDir,
    data_dir: PathBuf,
    process: Option<Process>,
    foreign: Option<String>,
}

impl Broker {
    /// Ours with the default settings, or the foreign one.
    pub fn start() -> Self {
        let Some(bootstrap) = foreign_bootstrap() else {
            return Settings::default().start();
        };
        let home = temp_dir();
        Self {
            data_dir: home.path().to_owned(),
            settings: Settings::default(),
            home,
            process: None,
            foreign: Some(bootstrap),
        }
    }

    pub fn bootstrap(&self) -> String {
        match &self.foreign {
            Some(bootstrap) => bootstrap.clone(),
            None => self.process().ready.kafka.clone(),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.bootstrap().parse().expect("an address and a port")
    }

    pub fn wire(&self) -> wire::Wire {
        wire::Wire::connect(self.address())
    }

    pub fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    pub fn ready(&self) -> &Ready {
        &self.process().ready
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub fn pid(&self) -> u32 {
        self.process().child.id()
    }

    /// What the broker wrote to stderr so far.
    pub fn stderr(&self) -> String {
        self.process().stderr()
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("the broker runs")
    }

    fn process_mut(&mut self) -> &mut Process {
        self.process.as_mut().expect("the broker runs")
    }

    /// Sends a signal by its name, as kill(1) takes it.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success(), "kill -s {name} failed");
    }

    /// Waits for the end; the exit code, or a panic that shows the log.
    pub fn wait_end(&mut self) -> Option<i32> {
        let status = wait(&mut self.process_mut().child, STOP_WAIT_MAX);
        let stderr = self.stderr();
        self.process = None;
        status
            .unwrap_or_else(|| panic!("the broker did not stop; its log:\n{stderr}"))
            .code()
    }

    /// SIGTERM, and the end that must follow: exit code 0.
    pub fn stop(&mut self) {
        self.signal("TERM");
        let stderr = self.stderr();
        assert_eq!(self.wait_end(), Some(0), "a clean stop; the log:\n{stderr}");
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let process = self.process.as_mut().expect("the broker runs");
        process.child.kill().expect("SIGKILL is sent");
        process.child.wait().expect("the child can be waited for");
        self.settings.listen = process.ready.kafka.clone();
        self.settings.admin = process.ready.admin.clone();
        self.process = None;
    }

    /// Starts again on the data directory and the ports of before.
    pub fn start_again(&mut self) {
        if let Some(process) = &self.process {
            self.settings.listen = process.ready.kafka.clone();
            self.settings.admin = process.ready.admin.clone();
        }
        self.process = None;
        self.process = Some(Process::spawn(self.settings.command(&self.data_dir)));
    }

    /// The next start runs on these cores.
    pub fn set_cores(&mut self, cores: &str) {
        cores.clone_into(&mut self.settings.cores);
    }

    /// A clean stop, then a start on the same port.
    pub fn restart(&mut self) {
        self.settings.listen = self.ready().kafka.clone();
        self.settings.admin = self.ready().admin.clone();
        self.stop();
        self.start_again();
    }

    /// SIGKILL, then a start on the same port.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// One GET to the admin address: status code and body.
    pub fn admin_get(&self, path: &str) -> (u16, String) {
        http_get(&self.ready().admin, path)
    }

    /// A line `Name:  VALUE kB` of `/proc/PID/status`, in bytes.
    pub fn memory_bytes(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(path).expect("the broker's status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .unwrap_or_else(|| panic!("{name} in the broker's status"));
        let kib: u64 = line
            .trim()
            .trim_end_matches("kB")
            .trim()
            .parse()
            .expect("a number of kB");
        kib * 1024
    }

    /// CPU time of all threads so far.
    pub fn cpu_time(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.pid());
        let stat = std::fs::read_to_string(path).expect("the broker's stat");
        // The name in parentheses may hold blanks; utime and stime are fields 14 and 15.
        let rest = stat.rsplit_once(')').expect("a name in parentheses").1;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if thread::panicking()
            && let Some(process) = &self.process
        {
            eprintln!("---- log of the broker ----\n{}----", process.stderr());
        }
    }
}

/// One GET over HTTP/1.1: status code and body.
pub fn http_get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the admin address accepts connections");
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .expect("the request is sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the answer is read");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let code = head
        .split_whitespace()
        .nth(1)
        .expect("a status code")
        .parse()
        .expect("a number");
    (code, body.to_owned())
}

/// The ready line's fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    pub line: String,
    pub kafka: String,
    pub admin: String,
    pub node: String,
    pub cores: String,
    pub data: String,
}

impl Ready {
    /// `ringmain ready kafka=HOST:PORT admin=HOST:PORT node=ID cores=LIST data=DIR`
    pub fn parse(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("ringmain ready kafka=")?;
        let (kafka, rest) = rest.split_once(" admin=")?;
        let (admin, rest) = rest.split_once(" node=")?;
        let (node, rest) = rest.split_once(" cores=")?;
        let (cores, data) = rest.split_once(" data=")?;
        Some(Self {
            line: line.to_owned(),
            kafka: kafka.to_owned(),
            admin: admin.to_owned(),
            node: node.to_owned(),
            cores: cores.to_owned(),
            data: data.to_owned(),
        })
    }
}

struct Process {
    child: Child,
    ready: Ready,
    stdout: Receiver<String>,
    stderr: Arc<Mutex<String>>,
}

impl Process {
    fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the broker's binary starts");
        let stderr = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&stderr);
        let errors = BufReader::new(child.stderr.take().expect("stderr is piped"));
        thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                let mut text = sink.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
            }
        });
        let (sender, stdout) = mpsc::channel();
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped"));
        thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let ready = stdout
            .recv_timeout(READY_WAIT_MAX)
            .ok()
            .and_then(|line| Ready::parse(&line));
        let Some(ready) = ready else {
            let _ = child.kill();
            let status = child.wait();
            thread::sleep(Duration::from_millis(100)); // the last lines of stderr arrive
            panic!(
                "the broker printed no ready line ({status:?}); its log:\n{}",
                stderr.lock().unwrap()
            );
        };
        Self {
            child,
            ready,
            stdout,
            stderr,
        }
    }

    fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Broker {
    /// Lines on stdout after the ready line; there must be none.
    pub fn further_stdout(&self) -> Vec<String> {
        self.process().stdout.try_iter().collect()
    }
}

/// Asks until the answer is yes; panics with `what` after `patience`.
pub fn eventually(what: &str, patience: Duration, mut question: impl FnMut() -> bool) {
    let end = Instant::now() + patience;
    while !question() {
        assert!(Instant::now() < end, "{what}: not within {patience:?}");
        thread::sleep(Duration::from_millis(20));
    }
}
