"""What differs between two surfaces: added, removed, moved, changed; in names and in bodies."""
from collections import Counter
from dataclasses import asdict, dataclass, field

from surface import top_name
from watched import room_of

ADDED, REMOVED, CHANGED, BODY, MOVED = "added", "removed", "changed", "body", "moved"


@dataclass
class Change:
    """One item that differs. before, after: its text in both releases ('' where it is not there)."""

    file: str
    kind: str
    name: str
    change: str
    before: str = ""
    after: str = ""
    mentions: list = field(default_factory=list)  # places of Quire that name it

    def as_dict(self):
        return asdict(self)


def compare_items(file, before, after):
    """The changes of one file, in the order of the newer one; what was removed comes last."""
    found = []
    for name, item in after.items():
        old = before.get(name)
        if old is None:
            found.append(Change(file, item.kind, name, ADDED, "", item.text))
        elif (old.kind, old.text) != (item.kind, item.text):
            before_text = old.text if old.kind == item.kind else f"{old.kind} {old.text}".rstrip()
            found.append(Change(file, item.kind, name, CHANGED, before_text, item.text))
        elif old.body != item.body:
            found.append(Change(file, item.kind, name, BODY, old.body, item.body))
    found += [Change(file, item.kind, name, REMOVED, item.text, "")
              for name, item in before.items() if name not in after]
    return found


def top_names(items):
    return {top_name(name) for name in items}


def moves_of(before, after):
    """{(old file, name): new file} of classes and functions that are in another file now."""
    old, new = {}, {}
    for files, gone_from, found in ((before, after, old), (after, before, new)):
        for file, items in files.items():
            for name in top_names(items) - top_names(gone_from.get(file, {})):
                if items.get(name) is not None and items[name].kind != "const":
                    found.setdefault(name, []).append(file)
    return {(old[name][0], name): new[name][0] for name in old
            if len(old[name]) == 1 and len(new.get(name, ())) == 1}


def leave_undescribed(before, after):
    """Takes out of `after` what `before` cannot tell: names of files that do not decide which Quire
    uses only since `before` was described. Returns them, as file: name."""
    left = []
    for file, items in list(after.files.items()):
        if room_of(file):
            continue
        known = top_names(before.files.get(file, {}))
        left += [f"{file}: {name}" for name in sorted(top_names(items) - known)]
        after.files[file] = {key: item for key, item in items.items() if top_name(key) in known}
        if not after.files[file] and file not in before.files:
            del after.files[file]
    return left


def part_of(items, name):
    return {key: item for key, item in items.items() if top_name(key) == name}


def compare(before, after):
    """All changes from one surface to the other, file by file."""
    moves = moves_of(before.files, after.files)
    gone, come = set(moves), {(file, name) for (_, name), file in moves.items()}
    found = []
    for file in sorted({*before.files, *after.files}):
        old = {k: i for k, i in before.files.get(file, {}).items()
               if (file, top_name(k)) not in gone}
        new = {k: i for k, i in after.files.get(file, {}).items()
               if (file, top_name(k)) not in come}
        found += compare_items(file, old, new)
    for (old_file, name), new_file in sorted(moves.items()):
        item = after.files[new_file][name]
        found.append(Change(new_file, item.kind, name, MOVED, old_file, new_file))
        found += compare_items(new_file, part_of(before.files[old_file], name),
                               part_of(after.files[new_file], name))
    return found


def folded(changes):
    """Without the members of classes that were added or removed as a whole."""
    whole = {(c.file, c.name): c.change for c in changes
             if c.kind == "class" and c.change in (ADDED, REMOVED)}
    return [c for c in changes if "." not in c.name
            or whole.get((c.file, c.name.rsplit(".", 1)[0])) != c.change]


def files_changed(before, after):
    """(changed, added, removed) paths."""
    both = set(before.files) & set(after.files)
    changed = sorted(f for f in both if before.files[f] != after.files[f])
    return (changed, sorted(set(after.files) - set(before.files)),
            sorted(set(before.files) - set(after.files)))


def counts(changes):
    return Counter(change.change for change in changes)
