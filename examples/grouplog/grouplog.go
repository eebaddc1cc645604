// A log with group commit under the rig, in Go: one client syncs for all that have written, the others wait for it.
//
// It shows what the protocol can say: several clients at work, a step by name, and a transaction that failed.
// Build it with: CGO_ENABLED=0 go build grouplog.go
package main

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
)

const size = 600

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func record(number int, seed int) string {
	text := fmt.Sprintf("%-*s", size-9, fmt.Sprintf("%d %d ", number, seed))
	return fmt.Sprintf("%s%08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// Return the numbers of the records from the first to the last one that is whole.
func numbers(seed int) (found []int) {
	content, err := os.ReadFile("log")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Fatal(err)
	}
	for ; len(content) >= size; content = content[size:] {
		word, _, _ := strings.Cut(string(content[:size]), " ")
		number, err := strconv.Atoi(word)
		if err != nil || string(content[:size]) != record(number, seed) {
			break
		}
		found = append(found, number)
	}
	return found
}

type store struct {
	file, folder    *os.File
	lock            sync.Mutex
	changed         *sync.Cond
	seed, failures  int
	written, synced int64
	syncing         bool
}

func open(seed int) *store {
	file, err := os.OpenFile("log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	must(err)
	folder, err := os.Open(".")
	must(err)
	// What a cut has left after the last whole record goes, before new ones are appended.
	end := int64(size * len(numbers(seed)))
	must(file.Truncate(end))
	// The name of the file is durable only with its directory.
	must(folder.Sync())
	s := &store{file: file, folder: folder, seed: seed, written: end, synced: end}
	s.changed = sync.NewCond(&s.lock)
	return s
}

// Append a record and wait until it is durable.
func (s *store) commit(number int) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	failures := s.failures
	if _, err := s.file.WriteString(record(number, s.seed)); err != nil {
		must(s.file.Truncate(s.written))
		return err
	}
	s.written += size
	for own := s.written; s.synced < own; {
		if s.syncing {
			s.changed.Wait()
		} else {
			s.lead()
		}
		if s.failures > failures {
			return errors.New("a sync failed")
		}
	}
	return nil
}

// Sync what has been written until now. What is written meanwhile is for the next leader.
func (s *store) lead() {
	s.syncing = true
	covered := s.written
	s.lock.Unlock()
	err := s.file.Sync()
	s.lock.Lock()
	s.syncing = false
	if err == nil {
		s.synced = covered
	} else {
		// What was written is in doubt, and a second sync would not say so.
		s.failures++
		s.written = s.synced
		must(s.file.Truncate(s.written))
	}
	s.changed.Broadcast()
}

// Write durably up to which record the log was whole.
func (s *store) checkpoint(number int) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	file, err := os.Create("new")
	if err == nil {
		_, err = fmt.Fprintln(file, number)
		err = errors.Join(err, file.Sync(), file.Close())
	}
	if err == nil {
		err = os.Rename("new", "checkpoint")
	}
	return errors.Join(err, s.folder.Sync())
}

func run(seed, count, clients, after int) {
	s := open(seed)
	oks := make([]chan bool, clients)
	var output sync.Mutex
	say := func(format string, words ...any) {
		output.Lock()
		defer output.Unlock()
		fmt.Printf(format, words...)
	}
	client := func(first int) {
		for number := first; number <= count; number += clients {
			if clients > 1 {
				say("begin %d\n", number)
			}
			err := s.commit(number)
			step := ""
			if err == nil && number%10 == 0 {
				err = s.checkpoint(number)
				step = " checkpoint"
			}
			if err == nil {
				say("ack %d%s\n", number, step)
			} else {
				say("fail %d %s\n", number, strings.ReplaceAll(err.Error(), "\n", " "))
			}
			<-oks[number%clients]
		}
	}
	for first := after + 1; first <= after+clients; first++ {
		oks[first%clients] = make(chan bool, count)
		go client(first)
	}
	answers := bufio.NewScanner(os.Stdin)
	for number := after + 1; number <= count && answers.Scan(); number++ {
		// `ok`, or with several clients `ok i`.
		answered := number
		if _, word, found := strings.Cut(answers.Text(), " "); found {
			answered, _ = strconv.Atoi(word)
		}
		oks[answered%clients] <- true
	}
}

func recover_(seed int) {
	shown := map[int]bool{}
	found := numbers(seed)
	if len(found) > 0 {
		// If only the program was killed, this may not be on the disk yet. What is shown must be.
		file, err := os.Open("log")
		must(err)
		must(file.Sync())
	}
	for _, number := range found {
		shown[number] = true
		fmt.Println("have", number)
	}
	if content, err := os.ReadFile("checkpoint"); err == nil {
		if number, _ := strconv.Atoi(strings.TrimSpace(string(content))); !shown[number] {
			fmt.Println("torn", number, "the checkpoint names a record that is not there")
		}
	}
}

func main() {
	log.SetFlags(0)
	if os.Args[1] == "recover" {
		seed, err := strconv.Atoi(os.Getenv("RIG_SEED"))
		must(err)
		recover_(seed)
		return
	}
	options := map[string]int{"--clients": 1}
	for i := 2; i < len(os.Args); i += 2 {
		value, err := strconv.Atoi(os.Args[i+1])
		must(err)
		options[os.Args[i]] = value
	}
	run(options["--seed"], options["--transactions"], options["--clients"], options["--after"])
}
