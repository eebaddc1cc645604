// A log under the rig, in Go: records of a number and its checksum are appended to one file, which is compacted at times.
// Build it with: CGO_ENABLED=0 go build golog.go
package main

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log"
	"os"
	"strconv"
	"strings"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func record(seed string, number int) string {
	text := fmt.Sprintf("%d %s", number, strings.Repeat(seed, 300))
	return fmt.Sprintf("%08x %s\n", crc32.ChecksumIEEE([]byte(text)), text)
}

// Cut off what a power cut has left after the first records.
func cut(file *os.File, after int) {
	content, err := os.ReadFile("log")
	must(err)
	whole := strings.Join(strings.SplitAfterN(string(content), "\n", after+1)[:after], "")
	must(file.Truncate(int64(len(whole))))
}

// Compact writes the log anew and puts it in the old one's place; one in need of it would leave out what is obsolete.
func compact(folder *os.File) *os.File {
	content, err := os.ReadFile("log")
	must(err)
	file, err := os.OpenFile("new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o644)
	must(err)
	_, err = file.Write(content)
	must(err)
	must(file.Sync())
	must(os.Rename("new", "log"))
	must(folder.Sync())
	return file
}

func run(seed string, count int, after int) {
	file, err := os.OpenFile("log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	must(err)
	cut(file, after)
	folder, err := os.Open(".")
	must(err)
	must(folder.Sync())
	answers := bufio.NewReader(os.Stdin)
	for number := after + 1; number <= count; number++ {
		_, err = file.WriteString(record(seed, number))
		must(err)
		must(file.Sync())
		step := ""
		if number%10 == 0 {
			must(file.Close())
			file = compact(folder)
			step = " compaction"
		}
		fmt.Printf("ack %d%s\n", number, step)
		if answer, _ := answers.ReadString('\n'); answer != "ok\n" {
			log.Fatal("no ok")
		}
	}
}

func recover_() {
	content, err := os.ReadFile("log")
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	must(err)
	lines := strings.SplitAfter(string(content), "\n")
	for number, line := range lines[:len(lines)-1] {
		_, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !strings.HasPrefix(line, fmt.Sprintf("%08x %d ", crc32.ChecksumIEEE([]byte(text)), number+1)) {
			fmt.Printf("torn %d its checksum is wrong\n", number+1)
			continue
		}
		fmt.Printf("have %d\n", number+1)
	}
}

func main() {
	log.SetFlags(0)
	if os.Args[1] == "recover" {
		recover_()
		return
	}
	count, err := strconv.Atoi(os.Args[5])
	must(err)
	after := 0
	if len(os.Args) > 7 {
		after, err = strconv.Atoi(os.Args[7])
		must(err)
	}
	run(os.Args[3], count, after)
}
