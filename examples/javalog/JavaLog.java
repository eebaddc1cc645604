import static java.nio.file.StandardOpenOption.APPEND;
import static java.nio.file.StandardOpenOption.CREATE;
import static java.nio.file.StandardOpenOption.READ;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;

/**
 * A log under the rig, in Java: a record is a line with a checksum, and what follows the last whole line is not there.
 * So a transaction is there as a whole or not at all (--promise durable,atomic).
 */
final class JavaLog {
    private static final Path LOG = Path.of("log");

    private static String record(int number, String value) {
        String text = number + " " + value;
        CRC32 checksum = new CRC32();
        checksum.update(text.getBytes(StandardCharsets.ISO_8859_1));
        return Long.toHexString(checksum.getValue()) + " " + text;
    }

    /** The places where records 1, 2, and so on end; the first one that is not whole ends the log. */
    private static List<Integer> ends() throws IOException {
        List<Integer> places = new ArrayList<>();
        String log = Files.readString(LOG, StandardCharsets.ISO_8859_1);
        int begin = 0;
        for (int end; (end = log.indexOf('\n', begin)) >= 0; begin = end + 1) {
            String line = log.substring(begin, end);
            String[] words = line.split(" ", 3);
            if (words.length < 3 || !line.equals(record(places.size() + 1, words[2]))) break;
            places.add(end + 1);
        }
        return places;
    }

    private static void run(String seed, int count, int after) throws IOException {
        BufferedReader answers = new BufferedReader(new InputStreamReader(System.in));
        try (FileChannel log = FileChannel.open(LOG, CREATE, APPEND);
                FileChannel folder = FileChannel.open(Path.of("."), READ)) {
            // What a cut has left of later transactions goes, before new ones are appended.
            log.truncate(after == 0 ? 0 : ends().get(after - 1));
            // The name of the file is durable only with its directory.
            folder.force(true);
            for (int number = after + 1; number <= count; number++) {
                String line = record(number, seed.repeat(900)) + "\n";
                ByteBuffer bytes = ByteBuffer.wrap(line.getBytes(StandardCharsets.ISO_8859_1));
                while (bytes.hasRemaining()) log.write(bytes);
                log.force(false);
                System.out.println("ack " + number);
                if (!"ok".equals(answers.readLine())) throw new IOException("no ok");
            }
        }
    }

    private static void recover() throws IOException {
        if (!Files.exists(LOG)) return;
        try (FileChannel log = FileChannel.open(LOG, READ)) {
            // If only the program was killed, this may not be on the disk yet. What is shown must be.
            log.force(true);
        }
        int count = ends().size();
        for (int number = 1; number <= count; number++) System.out.println("have " + number);
    }

    public static void main(String[] words) throws IOException {
        if (words[0].equals("run"))
            run(words[2], Integer.parseInt(words[4]), words.length > 6 ? Integer.parseInt(words[6]) : 0);
        else recover();
    }
}
