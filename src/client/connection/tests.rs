use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use proptest::prelude::*;

use super::*;

/// What a server does with one connection.
type Script = fn(TcpStream);

/// A server for one test: for each connection it runs the next of the scripts.
fn serve(scripts: Vec<Script>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        for script in scripts {
            script(listener.accept().unwrap().0);
        }
    });
    (address, thread)
}

/// Reads a request and gives its version.
fn read_request(stream: &mut TcpStream) -> i16 {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).unwrap();
    i16::from_be_bytes([frame[2], frame[3]])
}

/// Answers with a correlation id and a body.
fn answer(stream: &mut TcpStream, correlation_id: i32, body: &[u8]) {
    let mut frame = (body.len() as u32 + 4).to_be_bytes().to_vec();
    frame.extend_from_slice(&correlation_id.to_be_bytes());
    frame.extend_from_slice(body);
    stream.write_all(&frame).unwrap();
}

/// ApiVersions 0: no error; Produce 3 to 9.
const OLD_VERSIONS: [u8; 12] = [0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 9];

fn connect(scripts: Vec<Script>) -> Result<Client, ClientError> {
    let (address, server) = serve(scripts);
    let client = Client::connect(&address, &ConnectOptions::default());
    server.join().unwrap();
    client
}

#[test]
fn the_highest_common_version_is_used() {
    let client = connect(vec![|mut stream| {
        assert_eq!(read_request(&mut stream), 3);
        answer(
            &mut stream,
            0,
            &[0, 0, 2, 0, 0, 0, 3, 0, 9, 0, 0, 0, 0, 0, 0],
        );
    }])
    .unwrap();
    assert_eq!(client.version(ApiKey::Produce, 3, 12).unwrap(), 9);
    assert_eq!(client.version(ApiKey::Produce, 3, 7).unwrap(), 7);
    let error = client.version(ApiKey::Produce, 10, 12).unwrap_err();
    assert!(error.to_string().contains("Produce in versions 3 to 9"));
    let error = client.version(ApiKey::Fetch, 4, 12).unwrap_err();
    assert!(error.to_string().contains("Fetch in no version"));
}

#[test]
fn a_broker_that_does_not_know_our_api_versions_is_asked_in_version_0() {
    let client = connect(vec![|mut stream| {
        assert_eq!(read_request(&mut stream), 3);
        answer(&mut stream, 0, &[0, 35, 0, 0, 0, 0]);
        assert_eq!(read_request(&mut stream), 0);
        answer(&mut stream, 1, &OLD_VERSIONS);
    }])
    .unwrap();
    assert_eq!(client.version(ApiKey::Produce, 3, 12).unwrap(), 9);
}

#[test]
fn a_broker_that_hangs_up_at_our_api_versions_is_asked_again_in_version_0() {
    let client = connect(vec![
        |mut stream| {
            read_request(&mut stream);
        },
        |mut stream| {
            assert_eq!(read_request(&mut stream), 0);
            answer(&mut stream, 1, &OLD_VERSIONS);
        },
    ])
    .unwrap();
    assert_eq!(client.version(ApiKey::Produce, 3, 12).unwrap(), 9);
}

#[test]
fn what_is_no_kafka_broker_is_told_in_one_line() {
    let cases: [(&str, Script); 4] = [
        ("announced a response of 1213486160 bytes", |mut stream| {
            read_request(&mut stream);
            stream.write_all(b"HTTP/1.1 400 Bad Request").unwrap();
        }),
        ("announced a response of -1 bytes", |mut stream| {
            read_request(&mut stream);
            stream.write_all(&[0xff; 4]).unwrap();
        }),
        ("a request that was not asked", |mut stream| {
            read_request(&mut stream);
            answer(&mut stream, 9, &OLD_VERSIONS);
        }),
        ("to ApiVersions is unreadable", |mut stream| {
            read_request(&mut stream);
            answer(&mut stream, 0, &[0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        }),
    ];
    for (wanted, script) in cases {
        let text = connect(vec![script]).unwrap_err().to_string();
        assert!(text.contains(wanted), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
}

#[test]
fn a_missing_broker_is_told_with_how_to_start_one() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = Client::connect(&free.to_string(), &ConnectOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot connect to {free}: connection refused; start the broker with `ringmain serve`"
        )
    );
    let error = Client::connect("localhost", &ConnectOptions::default()).unwrap_err();
    assert!(error.to_string().contains("HOST:PORT"), "{error}");
}

#[test]
fn a_silent_broker_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ConnectOptions {
        timeout: Duration::from_millis(50),
        ..ConnectOptions::default()
    };
    let address = listener.local_addr().unwrap().to_string();
    let error = Client::connect(&address, &options).unwrap_err();
    assert!(matches!(error, ClientError::NoAnswer { .. }), "{error}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_of_versions_panic(body: Vec<u8>, version in 0_i16..=4) {
        let _ = read_api_versions(&body, version);
    }
}
