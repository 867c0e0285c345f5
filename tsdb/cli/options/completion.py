"""`tsdb completion`: a script that lets a shell complete commands, options and their choices.

The script contains all words, so that a key press starts no process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import typer

Shell = Literal["bash", "zsh", "fish"]


@dataclass(frozen=True, slots=True)
class Words:
    """Words that may follow a command. path: the command as typed, such as "tsdb topics create". values: options that
    take a value, with their choices. flags: options without a value."""

    path: str
    commands: dict[str, str] = field(default_factory=dict)
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)


def completion(
    ctx: typer.Context,
    shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell that the script is for.")],
) -> None:
    """Print a script that completes `tsdb` in a shell.

    bash: `source <(tsdb completion bash)` in ~/.bashrc. zsh: `source <(tsdb completion zsh)` in ~/.zshrc, behind
    compinit. fish: `tsdb completion fish > ~/.config/fish/completions/tsdb.fish`.
    """
    found = list(words_of(ctx.find_root().command, "tsdb"))
    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    sys.stdout.write(scripts[shell](found))


def words_of(command: Any, path: str) -> Iterator[Words]:  # Typer has no public names for commands and parameters.
    """The words of a command and of all its subcommands."""
    found = Words(path)
    for parameter in command.params:
        if parameter.param_type_name == "option":
            names = [name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")]
            if parameter.is_flag:
                found.flags.extend(names)
            else:
                choices = tuple(map(str, getattr(parameter.type, "choices", ())))
                found.values.update(dict.fromkeys(names, choices))
    found.flags.append("--help")
    below = getattr(command, "commands", {})
    for name, child in below.items():
        found.commands[name] = (child.help or "").strip().split("\n")[0]
    yield found
    for name, child in below.items():
        yield from words_of(child, f"{path} {name}")


def bash_script(found: list[Words]) -> str:
    """Script for bash 4 and later."""
    paths = " | ".join(f'"{words.path}"' for words in found if words.path != "tsdb")
    choices = "".join(
        f'        "{words.path} {option}") words="{" ".join(values)}" ;;\n'
        for words in found
        for option, values in words.values.items()
        if values
    )
    options = "".join(
        f'            "{words.path}") words="{" ".join((*words.commands, *words.values, *words.flags))}"'
        f' flags=" {" ".join(words.flags)} " ;;\n'
        for words in found
    )
    return _BASH.format(paths=paths, choices=choices, options=options)


def zsh_script(found: list[Words]) -> str:
    """The bash script, run by zsh's bashcompinit."""
    return "autoload -U +X bashcompinit && bashcompinit\n" + bash_script(found)


def fish_script(found: list[Words]) -> str:
    """Script for fish 3 and later."""
    paths = " ".join(f"'{words.path}'" for words in found)
    lines = [_FISH.format(paths=paths)]
    for words in found:
        at = f"complete -c tsdb -n '__tsdb_at \"{words.path}\"'"
        lines += [f"{at} -f -a {name} -d {_quoted(text)}" for name, text in words.commands.items()]
        for option, choices in words.values.items():
            lines.append(f"{at} -l {option[2:]} " + (f"-x -a '{' '.join(choices)}'" if choices else "-r"))
        lines += [f"{at} -l {option[2:]}" for option in words.flags]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_BASH = """\
_tsdb() {{
    local path="tsdb" words="" flags="" index
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}"
    for ((index = 1; index < COMP_CWORD; index++)); do
        case "$path ${{COMP_WORDS[index]}}" in
            {paths}) path="$path ${{COMP_WORDS[index]}}" ;;
        esac
    done
    case "$path $before" in
{choices}    esac
    if [ -z "$words" ]; then
        case "$path" in
{options}        esac
        # Behind an option that takes a value without choices come files.
        if [ "${{before#--}}" != "$before" ] && [ "${{flags#* $before }}" = "$flags" ]; then
            words=""
        fi
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _tsdb tsdb
"""

_FISH = """\
set -g __tsdb_paths {paths}
function __tsdb_at
    set -l path tsdb
    for word in (commandline -opc)[2..-1]
        if contains -- "$path $word" $__tsdb_paths
            set path "$path $word"
        end
    end
    test "$path" = "$argv[1]"
end"""
