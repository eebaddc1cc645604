#!/usr/bin/node
// A log with group commit under the rig, in JavaScript: one sync serves all that have written, and they wait for it.
//
// It shows what the protocol can say: several clients at work, a step by name, and a transaction that failed.
const fs = require("fs");
const readline = require("readline");
const { createHash } = require("crypto");

const SIZE = 600;

const record = (number, seed) => {
  const text = `${number} ${seed} `.padEnd(SIZE - 9, "x");
  return `${text}${createHash("sha256").update(text).digest("hex").slice(0, 8)}\n`;
};

// Return the numbers of the records from the first to the last one that is whole.
const numbers = (seed) => {
  const found = [];
  const content = fs.existsSync("log") ? fs.readFileSync("log", "latin1") : "";
  for (let begin = 0; begin < content.length; begin += SIZE) {
    const number = parseInt(content.slice(begin, begin + 20));
    if (content.slice(begin, begin + SIZE) !== record(number, seed)) break;
    found.push(number);
  }
  return found;
};

const syncFolder = () => {
  const folder = fs.openSync(".", "r");
  fs.fsyncSync(folder);
  fs.closeSync(folder);
};

class Log {
  constructor(seed) {
    this.seed = seed;
    this.file = fs.openSync("log", "a");
    // What a cut has left after the last whole record goes, before new ones are appended.
    this.written = this.synced = SIZE * numbers(seed).length;
    fs.ftruncateSync(this.file, this.written);
    // The name of the file is durable only with its directory.
    syncFolder();
    this.waiting = [];
    this.isSyncing = false;
  }

  // Append a record; the promise is kept once it is durable, and broken if it cannot be made so.
  commit(number) {
    return new Promise((resolve, reject) => {
      try {
        if (fs.writeSync(this.file, record(number, this.seed)) < SIZE) throw new Error("the disk is full");
      } catch (error) {
        fs.ftruncateSync(this.file, this.written);
        return reject(error);
      }
      this.written += SIZE;
      this.waiting.push({ end: this.written, resolve, reject });
      this.lead();
    });
  }

  // Sync what has been written until now, unless a sync is at work. What is written meanwhile is for the next one.
  lead() {
    if (this.isSyncing || !this.waiting.length) return;
    this.isSyncing = true;
    const covered = this.written;
    fs.fdatasync(this.file, (error) => {
      this.isSyncing = false;
      let done = this.waiting;
      if (error) {
        // What was written is in doubt, and a second sync would not say so.
        this.waiting = [];
        this.written = this.synced;
        fs.ftruncateSync(this.file, this.written);
      } else {
        this.synced = covered;
        done = this.waiting.filter(({ end }) => end <= covered);
        this.waiting = this.waiting.filter(({ end }) => end > covered);
      }
      for (const { resolve, reject } of done) error ? reject(error) : resolve();
      this.lead();
    });
  }

  // Write durably up to which record the log was whole.
  checkpoint(number) {
    const file = fs.openSync("new", "w");
    fs.writeSync(file, `${number}\n`);
    fs.fsyncSync(file);
    fs.closeSync(file);
    fs.renameSync("new", "checkpoint");
    syncFolder();
  }
}

function run(seed, count, clients, after) {
  const log = new Log(seed);
  const goOn = [];

  const client = async (first) => {
    for (let number = first; number <= count; number += clients) {
      if (clients > 1) console.log(`begin ${number}`);
      const ok = new Promise((resolve) => (goOn[number] = resolve));
      const isStep = number % 10 === 0;
      try {
        await log.commit(number);
        if (isStep) log.checkpoint(number);
        console.log(`ack ${number}${isStep ? " checkpoint" : ""}`);
      } catch (error) {
        console.log(`fail ${number} ${error.message}`);
      }
      await ok;
    }
  };

  let next = after + 1;
  // `ok`, or with several clients `ok i`.
  readline.createInterface({ input: process.stdin }).on("line", (line) => {
    goOn[Number(line.split(" ")[1] ?? next)]();
    next += 1;
    if (next > count) process.exit(0);
  });
  for (let first = after + 1; first <= after + clients; first++) client(first);
}

function recover(seed) {
  const shown = numbers(seed);
  if (shown.length) {
    // If only the program was killed, this may not be on the disk yet. What is shown must be.
    fs.fsyncSync(fs.openSync("log", "r"));
  }
  for (const number of shown) console.log(`have ${number}`);
  if (fs.existsSync("checkpoint")) {
    const number = parseInt(fs.readFileSync("checkpoint", "utf8"));
    if (!shown.includes(number)) console.log(`torn ${number} the checkpoint names a record that is not there`);
  }
}

const [command, ...words] = process.argv.slice(2);
if (command === "run") {
  const options = { "--clients": 1, "--after": 0 };
  for (let i = 0; i < words.length; i += 2) options[words[i]] = Number(words[i + 1]);
  run(options["--seed"], options["--transactions"], options["--clients"], options["--after"]);
} else {
  recover(Number(process.env.RIG_SEED));
}
