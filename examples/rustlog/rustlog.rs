//! A log under the rig, in Rust: a record is a line with a checksum, and what follows the last whole line is not there.
//! So a transaction is there as a whole or not at all (--promise durable,atomic).
//! Build it with: rustc -O -C target-feature=+crt-static rustlog.rs
use std::fs::{self, File, OpenOptions};
use std::io::{self, Error, Write};

/// FNV-1a: an error of the disk is found, an attack is not.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn record(number: usize, value: &str) -> String {
    let text = format!("{} {}", number, value);
    format!("{:016x} {}\n", checksum(&text), text)
}

/// The places where records 1, 2, and so on end; the first one that is not whole ends the log.
fn ends(log: &[u8]) -> Vec<u64> {
    let mut places = Vec::new();
    let mut end = 0;
    for line in String::from_utf8_lossy(log).split_inclusive('\n') {
        let value = line.trim_end().splitn(3, ' ').nth(2).unwrap_or("");
        if line != record(places.len() + 1, value) {
            break;
        }
        end += line.len() as u64;
        places.push(end);
    }
    places
}

fn run(seed: &str, count: usize, after: usize) -> io::Result<()> {
    let mut log = OpenOptions::new().create(true).append(true).open("log")?;
    // What a cut has left of later transactions goes, before new ones are appended.
    log.set_len(if after == 0 { 0 } else { ends(&fs::read("log")?)[after - 1] })?;
    // The name of the file is durable only with its directory.
    File::open(".")?.sync_all()?;
    for number in after + 1..=count {
        log.write_all(record(number, &seed.repeat(900)).as_bytes())?;
        log.sync_data()?;
        println!("ack {}", number);
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if answer != "ok\n" {
            return Err(Error::new(io::ErrorKind::Other, "no ok"));
        }
    }
    Ok(())
}

fn recover() -> io::Result<()> {
    let log = match File::open("log") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    // If only the program was killed, this may not be on the disk yet. What is shown must be.
    log.sync_all()?;
    for number in 1..=ends(&fs::read("log")?).len() {
        println!("have {}", number);
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize| words.get(place).and_then(|word| word.parse().ok()).unwrap_or(0);
    if words[0] == "run" {
        run(&words[2], number(4), number(6))
    } else {
        recover()
    }
}
