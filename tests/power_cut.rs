//! A power cut at any moment: what was acknowledged is on the disk, whatever becomes of the writes
//! that no flush covers.
//!
//! The device under the broker's file system records all writes and flushes. From that come images
//! of what a device may hold after a cut; a broker is started on each, and the power fails once
//! more while it recovers.
//!
//! Needs root, /dev/fuse and loop devices; elsewhere the tests say so and pass, unless
//! `RINGMAIN_REQUIRE_POWER_CUT=1`. `RINGMAIN_POWER_SEED` repeats the choices of a run as far as
//! timing lets it; `RINGMAIN_POWER_CUTS` sets how many cuts are tried.

mod support;

#[path = "support/power/mod.rs"]
mod power;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use power::Random;
use power::device::{Device, Event, Loss, Recording, holds};
use power::filesystem::{Kind, Mounted, is_unavailable};
use power::workload::Model;
use support::{Broker, Settings, foreign_bootstrap, two_cores};

const DEVICE_BYTES: usize = 192 << 20;
/// Cuts of one workload; the next one goes on where the last cut left the disk.
const CUTS_A_WORKLOAD: usize = 3;
/// Workloads until the disk is replaced by an empty one, long before it is full.
const WORKLOADS_A_DISK: usize = 3;

/// Small commit logs and segments, so that files are used again and rolled all the time.
const CONFIG: &str = "ringmain.commit.log.bytes = 4194304\nlog.segment.bytes = 1048576\n";

fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number")),
    )
}

fn is_skipped(test: &str) -> bool {
    foreign_bootstrap().is_some() || is_unavailable(test, true)
}

fn start(mounted: &Mounted, cores: &str) -> Broker {
    let mut settings = Settings::default()
        .config(CONFIG)
        .data_dir(&mounted.path().join("data"));
    settings.cores = cores.to_owned();
    settings.start()
}

/// One core or two: a start takes over from any number.
fn any_cores(random: &mut Random) -> String {
    let cores = two_cores();
    let single = cores.split(',').next().unwrap_or("0").to_owned();
    if random.below(3) == 0 { single } else { cores }
}

#[test]
fn a_flush_reaches_the_device_after_its_write_and_before_fdatasync_returns() {
    if is_skipped("a_flush_reaches_the_device_after_its_write_and_before_fdatasync_returns") {
        return;
    }
    let device = Device::attach(vec![0; 64 << 20], Random::new(1)).expect("FUSE");
    let clock = device.clock();
    let needle = b"this is what must be flushed";
    let (before, after) = {
        let mounted = Mounted::new(&device.file(), Kind::Fresh, true);
        assert!(
            mounted.is_direct(),
            "the loop device has no cache of its own"
        );
        let file = File::create(mounted.path().join("file")).expect("a file");
        file.write_all_at(needle, 0).expect("a write");
        let before = clock.now();
        file.sync_data().expect("fdatasync");
        (before, clock.now())
    };
    let recording = device.into_recording();
    let events = &recording.events[..after];
    let arrival = events
        .iter()
        .position(|event| matches!(event, Event::Write { bytes, .. } if holds(bytes, needle)))
        .expect("the write reached the device before fdatasync returned");
    let answered = events
        .iter()
        .position(|event| matches!(event, Event::Written { arrival: it } if *it == arrival))
        .expect("the write was answered");
    let flush = events
        .iter()
        .skip(answered)
        .position(|event| matches!(event, Event::Flush))
        .expect("a flush came after it")
        + answered;
    assert!(flush >= before, "it is the flush of this fdatasync");
    let is_flushed = events
        .iter()
        .any(|event| matches!(event, Event::Flushed { arrival } if *arrival == flush));
    assert!(is_flushed, "fdatasync waited for the flush");
    // The model agrees: the write may be lost until then, and not after.
    let mut random = Random::new(2);
    let lost = recording.image_after_cut(flush, Loss::All, &mut random);
    assert!(!holds(&lost, needle), "no flush covers it yet");
    let kept = recording.image_after_cut(after, Loss::All, &mut random);
    assert!(holds(&kept, needle), "a flush covers it");
}

#[test]
fn no_acknowledged_record_is_lost_by_a_power_cut() {
    if is_skipped("no_acknowledged_record_is_lost_by_a_power_cut") {
        return;
    }
    let seed = number_from("RINGMAIN_POWER_SEED")
        .unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    let cuts = number_from("RINGMAIN_POWER_CUTS").unwrap_or(6) as usize;
    println!("power cuts: RINGMAIN_POWER_SEED={seed}");
    let mut random = Random::new(seed);
    let (mut image, mut model) = (None, Model::default());
    let mut done = 0;
    while done < cuts {
        if done % (CUTS_A_WORKLOAD * WORKLOADS_A_DISK) == 0 {
            (image, model) = (None, Model::default());
        }
        let run = record(image.take(), &mut model, &mut random);
        let mut left = None;
        for _ in 0..CUTS_A_WORKLOAD.min(cuts - done) {
            let cut = run.choose_cut(&model, &mut random);
            let loss = Loss::any(&mut random);
            done += 1;
            println!(
                "cut {done} of {cuts}, RINGMAIN_POWER_SEED={seed}: before event {cut} of {}, lost is {loss:?}",
                run.recording.events.len()
            );
            let after = run.recording.image_after_cut(cut, loss, &mut random);
            left = Some(recover_twice(after, &model, cut, &mut random));
        }
        let (next_image, next_model) = left.expect("at least one cut a workload");
        (image, model) = (Some(next_image), next_model);
    }
}

/// A workload's recording, and from when on a cut is worth while.
struct Run {
    recording: Recording,
    /// The file system is there.
    made: usize,
    /// The broker takes requests.
    ready: usize,
    end: usize,
}

impl Run {
    /// Mostly right after an acknowledgement, where a flush that is missing shows.
    fn choose_cut(&self, model: &Model, random: &mut Random) -> usize {
        let mut times = model.acknowledgement_times();
        times.retain(|time| (self.ready..=self.end).contains(time));
        match random.below(6) {
            0 => random.between(self.made as u64, self.ready as u64) as usize,
            1 | 2 => random.between(self.ready as u64, self.end as u64) as usize,
            _ => times[random.below(times.len() as u64) as usize],
        }
    }
}

/// Drives a broker on a fresh device, or on the image of a former cut, up to a kill.
fn record(image: Option<Vec<u8>>, model: &mut Model, random: &mut Random) -> Run {
    let kind = if image.is_some() {
        Kind::Used
    } else {
        Kind::Fresh
    };
    let image = image.unwrap_or_else(|| vec![0; DEVICE_BYTES]);
    let device = Device::attach(image, random.fork()).expect("FUSE");
    let clock = device.clock();
    let (made, ready, end) = {
        let mounted = Mounted::new(&device.file(), kind, true);
        let made = clock.now();
        let cores = any_cores(random);
        let mut broker = start(&mounted, &cores);
        let ready = clock.now();
        let how_long = Duration::from_millis(random.between(800, 2500));
        model.drive(broker.address(), &clock, random, how_long);
        let end = clock.now();
        broker.kill();
        (made, ready, end)
    };
    Run {
        recording: device.into_recording(),
        made,
        ready,
        end,
    }
}

/// Starts a broker on the image and finds all that was acknowledged before the cut; does so again
/// on an image of a cut during that start. The last image, and what is known to be on it.
fn recover_twice(
    image: Vec<u8>,
    model: &Model,
    cut: usize,
    random: &mut Random,
) -> (Vec<u8>, Model) {
    let (recording, ready, found) = recover(image, model.clone(), cut, random);
    let again = random.below(recording.events.len() as u64 + 1) as usize;
    let loss = Loss::any(random);
    println!(
        "  and again before event {again} of {}, lost is {loss:?}",
        recording.events.len()
    );
    let image = recording.image_after_cut(again, loss, random);
    // What could be read once has to stay.
    let known = if again >= ready { &found } else { model };
    let (recording, _, model) = recover(image, known.clone(), cut, random);
    let end = recording.events.len();
    (recording.image_after_cut(end, Loss::Nothing, random), model)
}

/// What the device recorded, since when the broker took requests, and what it had.
fn recover(
    image: Vec<u8>,
    mut model: Model,
    cut: usize,
    random: &mut Random,
) -> (Recording, usize, Model) {
    let started = Instant::now();
    let device = Device::attach(image, random.fork()).expect("FUSE");
    let clock = device.clock();
    let ready = {
        let mounted = Mounted::new(&device.file(), Kind::Used, true);
        let cores = any_cores(random);
        let mut broker = start(&mounted, &cores);
        let ready = clock.now();
        let records = model.check(broker.address(), cut);
        println!(
            "  {records} records of {} topics on cores {cores}, in {:?}",
            model.topics.len(),
            started.elapsed()
        );
        broker.kill();
        ready
    };
    (device.into_recording(), ready, model)
}
