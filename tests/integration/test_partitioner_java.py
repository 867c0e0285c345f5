"""The partitioner against the Java client: one Java program hashes what we hash, by the class Kafka itself uses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random

from stack.maven import KAFKA, jars
from support.data.log_records import GOLDEN
from tsdb.model.partitioner import murmur2, partition_of

PARTITIONS = (1, 2, 3, 16, 18, 1009)
PROGRAM = """
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.utils.Utils;

public class Murmur2 {
    public static void main(String[] partitions) {
        Scanner keys = new Scanner(System.in);
        StringBuilder lines = new StringBuilder();
        while (keys.hasNextLine()) {
            int hash = Utils.murmur2(HexFormat.of().parseHex(keys.nextLine()));
            lines.append(Integer.toUnsignedString(hash));
            for (String count : partitions)
                lines.append(' ').append(Utils.toPositive(hash) % Integer.parseInt(count));
            lines.append('\\n');
        }
        System.out.print(lines);
    }
}
"""


def keys() -> list[bytes]:
    """The golden vectors' keys and placements, and random keys of every length that the hash tells apart."""
    vectors = json.loads((GOLDEN / "v1/hash_vectors.json").read_text())
    golden = [vector["key"] for vector in vectors["murmur2"]] + [vector["placement"] for vector in vectors["series"]]
    random = Random(20)
    return [bytes.fromhex(key) for key in golden] + [random.randbytes(index % 70) for index in range(3000)]


def test_murmur2_and_partitions_agree_with_the_java_client(tmp_path: Path) -> None:
    source = tmp_path / "Murmur2.java"
    source.write_text(PROGRAM)
    command = ["java", "-cp", f"{jars(KAFKA)}/*", str(source), *map(str, PARTITIONS)]
    text = "".join(f"{key.hex()}\n" for key in keys())
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    ours = [[murmur2(key), *(partition_of(key, count) for count in PARTITIONS)] for key in keys()]
    assert [[int(word) for word in line.split()] for line in done.stdout.splitlines()] == ours
