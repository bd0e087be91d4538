"""Looks past a known difference: takes the values of some fields out of a recording.

    # s|new=...|common=3|...        what vLLM answered, as --explain writes it
    # s|new=...|common=|...         without the value of common

The fingerprints are computed again, and a replayer with QUIRE_PARITY_IGNORE=common takes the same
values out of Quire's answers.
"""
FNV_OFFSET, FNV_PRIME, MASK64 = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def without(answer, names):
    """The answer without the values of these fields."""
    parts = answer.split("|")
    return "|".join(f"{part.split('=')[0]}=" if "=" in part and part.split("=")[0] in names else part
                    for part in parts)


def rewrite(lines, kind, names):
    """A recording's lines, without these fields."""
    value, out = FNV_OFFSET, []
    for number, line in enumerate(lines):
        follows = lines[number + 1] if number + 1 < len(lines) else ""
        if line.startswith("#"):
            continue
        if line.split(" ")[0] == kind:
            value = FNV_OFFSET
        if line.startswith("end "):
            line = f"end {value:016x}"
        out.append(line)
        if follows.startswith("# "):
            answer = without(follows[2:], names)
            for byte in answer.encode():
                value = ((value ^ byte) * FNV_PRIME) & MASK64
            out[-1] = f"{line.rsplit(' ', 1)[0]} {value >> 52:03x}"
            out.append(f"# {answer}")
    return out
