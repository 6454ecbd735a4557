//! One connection of the producer: a non-blocking socket on a thread of its own.
//!
//! It keeps as many requests unanswered as it may, writes with vectored calls straight from the
//! one copy of the batch (which stays in the core's cache), and looks at responses only when it
//! cannot send.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::load::Load;
use super::report::new_histogram;
use super::request::{ProduceRequest, read_produce_response};
use crate::client::error::io_reason;

/// The largest response to Produce that we take, in bytes.
const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// How long a broker may leave requests unanswered.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);

/// A request due sooner than this is waited for by polling: a sleeping thread wakes about 60 us
/// late, which would count as latency.
const SPIN_BEFORE_SEND: Duration = Duration::from_micros(100);

/// When requests are due: every `interval`, from `offset` on.
#[derive(Debug)]
pub struct Pace {
    pub interval: Duration,
    pub offset: Duration,
}

/// One connection.
#[derive(Debug)]
pub struct Sender {
    pub stream: TcpStream,
    pub address: String,
    pub requests: Vec<ProduceRequest>,
    pub version: i16,
    pub wants_answers: bool,
    pub in_flight_max: usize,
    pub request_records: u64,
    pub request_bytes: u64,
    pub pace: Option<Pace>,
}

/// A worker's latencies in nanoseconds: from the sending (or the due time) to the answer.
#[derive(Debug)]
pub struct Timing {
    pub latency: Histogram<u64>,
    pub lateness: Histogram<u64>,
}

#[derive(Debug)]
struct Unanswered {
    correlation_id: i32,
    since: Instant,
    counts: bool,
}

/// A request on its way into the socket.
#[derive(Debug)]
struct Outgoing {
    request: usize,
    sent_bytes: usize,
}

impl Sender {
    pub fn send_until_over(mut self, load: &Load) -> Result<Timing, String> {
        self.stream
            .set_nonblocking(true)
            .map_err(|error| self.lost(&error))?;
        let begun = Instant::now();
        let mut timing = Timing {
            latency: new_histogram(),
            lateness: new_histogram(),
        };
        let mut unanswered: VecDeque<Unanswered> = VecDeque::new();
        let mut outgoing: Option<Outgoing> = None;
        let mut incoming = Incoming::default();
        let mut started = 0_u64;
        let mut over = false;
        loop {
            // 1. Send until the socket is full, enough is unanswered, or nothing is due.
            let mut due_in = None;
            loop {
                if outgoing.is_none() && !over && unanswered.len() < self.in_flight_max {
                    let now = Instant::now();
                    let due = self.due(begun, started).unwrap_or(now);
                    over = load.is_over();
                    if due > now {
                        due_in = Some(due - now);
                    } else if let Some(counts) = load.next_request() {
                        if counts {
                            timing.lateness.saturating_record(nanoseconds(now - due));
                        }
                        outgoing = Some(self.start(started, due, counts, &mut unanswered));
                        started += 1;
                    } else {
                        over = true;
                    }
                }
                let Some(current) = &mut outgoing else { break };
                let request = &self.requests[current.request];
                match request.write_from(current.sent_bytes, &mut self.stream) {
                    Ok(sent_bytes) => current.sent_bytes = sent_bytes,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(self.lost(&error)),
                }
                if current.sent_bytes == request.total_bytes() {
                    outgoing = None;
                    if !self.wants_answers {
                        self.finish(unanswered.pop_back(), load, &mut timing);
                    }
                }
            }
            if over && outgoing.is_none() && unanswered.is_empty() {
                return Ok(timing);
            }
            // 2. Wait for room, an answer, or the next due time.
            let ready = self.wait(outgoing.is_some(), due_in)?;
            // 3. Take what answers there are.
            if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.receive(&mut incoming)?;
                while let Some(frame) = incoming.next_frame(&self.address)? {
                    let answer = read_produce_response(frame, self.version).map_err(|error| {
                        format!("the response of {} is unreadable: {error}", self.address)
                    })?;
                    if let Some(refusal) = answer.refusal {
                        return Err(refusal);
                    }
                    let oldest = unanswered.pop_front();
                    if oldest.as_ref().map(|request| request.correlation_id)
                        != Some(answer.correlation_id)
                    {
                        return Err(format!("{} answered out of order", self.address));
                    }
                    self.finish(oldest, load, &mut timing);
                }
            }
        }
    }

    /// When the request of that number is due, if there is a pace.
    fn due(&self, begun: Instant, number: u64) -> Option<Instant> {
        let pace = self.pace.as_ref()?;
        Some(begun + pace.offset + pace.interval.mul_f64(number as f64))
    }

    fn start(
        &mut self,
        number: u64,
        since: Instant,
        counts: bool,
        unanswered: &mut VecDeque<Unanswered>,
    ) -> Outgoing {
        let request = (number % self.requests.len() as u64) as usize;
        let correlation_id = number as i32;
        self.requests[request].set_correlation_id(correlation_id);
        unanswered.push_back(Unanswered {
            correlation_id,
            since,
            counts,
        });
        Outgoing {
            request,
            sent_bytes: 0,
        }
    }

    fn finish(&self, request: Option<Unanswered>, load: &Load, timing: &mut Timing) {
        if let Some(request) = request.filter(|request| request.counts) {
            let latency = nanoseconds(request.since.elapsed());
            timing.latency.saturating_record(latency);
            load.add(self.request_records, self.request_bytes);
        }
    }

    /// What the socket is ready for; nothing when the next request is due.
    fn wait(&self, wants_room: bool, due_in: Option<Duration>) -> Result<PollFlags, String> {
        let mut interest = PollFlags::IN;
        if wants_room {
            interest |= PollFlags::OUT;
        }
        let mut descriptors = [PollFd::new(&self.stream, interest)];
        let pause = match due_in {
            Some(due_in) => due_in.saturating_sub(SPIN_BEFORE_SEND),
            None => ANSWER_WAIT_MAX,
        };
        let pause = Timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: i64::from(pause.subsec_nanos()),
        };
        match poll(&mut descriptors, Some(&pause)) {
            Ok(0) if due_in.is_none() => Err(format!(
                "{} left requests unanswered for {} s; the broker's log says why",
                self.address,
                ANSWER_WAIT_MAX.as_secs()
            )),
            Ok(_) => Ok(descriptors[0].revents()),
            Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
            Err(error) => Err(self.lost(&error.into())),
        }
    }

    fn receive(&mut self, incoming: &mut Incoming) -> Result<(), String> {
        match incoming.read_from(&mut self.stream) {
            Ok(0) => Err(self.lost(&io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn lost(&self, error: &io::Error) -> String {
        format!(
            "the connection to {} broke: {}; the broker's log says why",
            self.address,
            io_reason(error)
        )
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Response bytes, cut into frames.
#[derive(Debug, Default)]
struct Incoming {
    bytes: Vec<u8>,
    /// Where the next frame begins.
    start: usize,
}

impl Incoming {
    fn read_from(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        const READ_BYTES: usize = 16 * 1024;
        self.bytes.drain(..self.start);
        self.start = 0;
        let len = self.bytes.len();
        self.bytes.resize(len + READ_BYTES, 0);
        let result = stream.read(&mut self.bytes[len..]);
        self.bytes.truncate(len + *result.as_ref().unwrap_or(&0));
        result
    }

    /// The next whole frame without its length.
    fn next_frame(&mut self, address: &str) -> Result<Option<&[u8]>, String> {
        let Some((length, rest)) = self.bytes[self.start..].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > RESPONSE_BYTES_MAX {
            return Err(format!(
                "{address} announced a response of {length} bytes to Produce; is it a Kafka broker?"
            ));
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        self.start += 4 + length;
        Ok(Some(frame))
    }
}
