import static java.nio.file.StandardOpenOption.APPEND;
import static java.nio.file.StandardOpenOption.CREATE;
import static java.nio.file.StandardOpenOption.READ;

import com.sun.nio.file.ExtendedOpenOption;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Two threads write each transaction, and each waits for a disk of the host first: nobody knows when that answers. */
final class RacingLog {
    private static final Path LOG = Path.of("log");

    private static void write(FileChannel log, String half) {
        try (FileChannel disk = FileChannel.open(Path.of("/dev/vdb"), READ, ExtendedOpenOption.DIRECT)) {
            disk.read(ByteBuffer.allocateDirect(8192).alignedSlice(4096));
            log.write(ByteBuffer.wrap((half + " " + System.nanoTime() + "\n").getBytes()));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void run(int count) throws Exception {
        BufferedReader answers = new BufferedReader(new InputStreamReader(System.in));
        try (FileChannel log = FileChannel.open(LOG, CREATE, APPEND);
                FileChannel folder = FileChannel.open(Path.of("."), READ)) {
            folder.force(true);
            for (int number = 1; number <= count; number++) {
                String name = number + " ";
                Thread other = new Thread(() -> write(log, name + "a"));
                other.start();
                write(log, name + "b");
                other.join();
                log.force(false);
                System.out.println("ack " + number);
                if (!"ok".equals(answers.readLine())) throw new IOException("no ok");
            }
        }
    }

    private static void recover() throws IOException {
        if (!Files.exists(LOG)) return;
        List<String> halves = new ArrayList<>();
        for (String line : new String(Files.readAllBytes(LOG), "ISO-8859-1").split("\n"))
            if (line.matches("\\d+ [ab] \\d+")) halves.add(line.replaceFirst(" \\d+$", ""));
        for (int number = 1; halves.contains(number + " a") && halves.contains(number + " b"); number++)
            System.out.println("have " + number);
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("run")) run(Integer.parseInt(words[4]));
        else recover();
    }
}
