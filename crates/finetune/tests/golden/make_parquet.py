"""Writes the Parquet files of tests/it/parquet.rs, and the same rows as JSON Lines.

    pip install pyarrow==26.0.1
    python3 make_parquet.py
"""

import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = pathlib.Path(__file__).parent / "parquet"


def examples():
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    schema = pa.schema([
        ("id", pa.int64()),
        ("image", pa.binary()),
        ("text", pa.string()),
        ("prompt", pa.large_string()),
        ("completion", pa.dictionary(pa.int32(), pa.string())),
        ("messages", pa.list_(message)),
    ])
    rows = []
    for number in range(70):
        row = dict.fromkeys(schema.names)
        row["id"] = number
        row["image"] = bytes([number, 255])
        if number % 3 == 0:
            row["text"] = f"the cat {number} é\n\"x\""
        elif number % 3 == 1:
            row["prompt"], row["completion"] = f"a {number}", ["the", "cat"][number % 2]
        else:
            turns = [("user", f"x {number}"), ("assistant", "y"), ("user", ""), ("assistant", "z")]
            turns = turns[: 2 + number % 4 // 2 * 2]
            row["messages"] = [{"role": role, "content": text} for role, text in turns]
        rows.append(row)
    return schema, rows


def pairs():
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    schema = pa.schema([(name, pa.list_(message)) for name in ("chosen", "rejected")])
    said = lambda text: [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": text},
    ]
    return schema, [{"chosen": said(f"{n}"), "rejected": said("no")} for n in range(5)]


def write(name, schema, rows, **options):
    table = pa.Table.from_pylist(rows, schema)
    pq.write_table(table, FOLDER / f"{name}.parquet", **options)


def main():
    FOLDER.mkdir(exist_ok=True)
    schema, rows = examples()
    # Several row groups and pages.
    write("snappy", schema, rows, compression="snappy", row_group_size=30, data_page_size=64)
    write("gzip", schema, rows, compression="gzip", version="1.0")
    write("plain", schema, rows, compression="none", data_page_version="2.0")
    write("zstd", schema, rows, compression="zstd")
    kept = [{k: v for k, v in row.items() if k not in ("id", "image")} for row in rows]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in kept]
    (FOLDER / "rows.jsonl").write_text("".join(lines))
    schema, rows = pairs()
    write("pairs", schema, rows)
    (FOLDER / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write("binary", pa.schema([("text", pa.binary())]), [{"text": b"the"}])
    write("other", pa.schema([("a", pa.int32()), ("b", pa.string())]), [{"a": 1, "b": "x"}])


main()
