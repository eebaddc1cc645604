// A log under the rig, in Go: records of a number and its checksum are appended to one file.
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

func run(seed string, count int) {
	file, err := os.OpenFile("log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	must(err)
	folder, err := os.Open(".")
	must(err)
	must(folder.Sync())
	answers := bufio.NewReader(os.Stdin)
	for number := 1; number <= count; number++ {
		_, err = file.WriteString(record(seed, number))
		must(err)
		must(file.Sync())
		fmt.Printf("ack %d\n", number)
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
		text := strings.TrimSuffix(line[min(9, len(line)):], "\n")
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
	run(os.Args[3], count)
}
