//! A file of the workspace, as text and as code: the same text with comments, strings and
//! characters blanked, so that a rule about code does not trip over prose.

/// One text file.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// From the workspace's folder, with `/`.
    pub(crate) path: String,
    /// As it is.
    pub(crate) text: String,
    /// Rust without its comments and literals, line by line as in `text`; empty for other files.
    pub(crate) code: String,
}

impl SourceFile {
    pub(crate) fn new(path: &str, text: String) -> SourceFile {
        let code = if path.ends_with(".rs") {
            blank_prose(&text)
        } else {
            String::new()
        };
        SourceFile {
            path: path.to_owned(),
            text,
            code,
        }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the whole file is a test: `tests.rs`, or anything in a folder `tests`.
    pub(crate) fn is_test(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|part| part == "tests" || part == "tests.rs")
    }

    /// How many lines come before the tests that are kept in the file itself.
    pub(crate) fn lines_before_tests(&self) -> usize {
        let lines: Vec<&str> = self.code.lines().collect();
        let begins = |pair: &[&str]| {
            pair[0].trim() == "#[cfg(test)]"
                && pair[1].starts_with("mod ")
                && pair[1].ends_with('{')
        };
        let tests = lines.windows(2).position(begins);
        tests.unwrap_or(lines.len())
    }

    /// `PATH:LINE: message`
    pub(crate) fn finding(&self, line: usize, message: &str) -> String {
        format!("{}:{line}: {message}", self.path)
    }
}

/// Whether `word` stands in `line` with nothing that belongs to a word on either side.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let joins = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    line.match_indices(word).any(|(start, _)| {
        let bytes = line.as_bytes();
        let before = start.checked_sub(1).and_then(|index| bytes.get(index));
        !joins(before) && !joins(bytes.get(start + word.len()))
    })
}

/// Replaces comments and literals of Rust by spaces, keeping the line breaks.
fn blank_prose(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = prose_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
            continue;
        }
        for &char in &chars[at..end] {
            code.push(if char == '\n' { '\n' } else { ' ' });
        }
        at = end;
    }
    code
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none starts there.
fn prose_end(chars: &[char], at: usize) -> usize {
    let next = |ahead: usize| chars.get(at + ahead).copied();
    let in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match chars[at] {
        '/' if next(1) == Some('/') => find(chars, at, |rest| rest[0] == '\n'),
        '/' if next(1) == Some('*') => comment_end(chars, at),
        '"' => quoted_end(chars, at, '"'),
        'r' if !in_word || chars[at - 1] == 'b' => raw_end(chars, at).unwrap_or(at),
        '\'' if next(1) == Some('\\') => quoted_end(chars, at, '\''),
        '\'' if next(2) == Some('\'') => at + 3,
        _ => at,
    }
}

/// The first place from `at` on where `is_end` holds, or the end of the text.
fn find(chars: &[char], at: usize, is_end: impl Fn(&[char]) -> bool) -> usize {
    let mut places = at..chars.len();
    places
        .find(|&place| is_end(&chars[place..]))
        .unwrap_or(chars.len())
}

fn comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut place = at;
    while place + 1 < chars.len() {
        match (chars[place], chars[place + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                place += 1;
                continue;
            }
        }
        place += 2;
        if depth == 0 {
            return place;
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], at: usize, quote: char) -> usize {
    let mut place = at + 1;
    while place < chars.len() && chars[place] != quote {
        place += if chars[place] == '\\' { 2 } else { 1 };
    }
    chars.len().min(place + 1)
}

/// The end of `r"…"` or `r#"…"#`; `None` when it is neither.
fn raw_end(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..]
        .iter()
        .take_while(|&&char| char == '#')
        .count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return None;
    }
    let close = |rest: &[char]| {
        rest[0] == '"' && rest[1..].iter().take_while(|&&char| char == '#').count() >= hashes
    };
    let end = find(chars, at + 2 + hashes, close);
    Some(chars.len().min(end + 1 + hashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_is_kept() {
        for (text, code) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x\"y") + 1"#, "f(      ) + 1"),
            (r##"r#"a"b"# + c"##, "         + c"),
            (r##"b"x" + br#"y"# + z"##, "b    + b       + z"),
            (r"'\'' 'x' &'a T", "         &'a T"),
            ("for_r\"x\"", "for_r   "),
            ("\"never closed", "             "),
        ] {
            let blanked = blank_prose(text);
            assert_eq!(blanked, code, "{text}");
        }
    }

    #[test]
    fn tests_in_the_file_are_not_counted() {
        let text = "//! x\nfn f() {}\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(
            SourceFile::new("a.rs", text.to_owned()).lines_before_tests(),
            2
        );
        let text = "//! x\n#[cfg(test)]\nmod tests;\nfn f() {}\n";
        assert_eq!(
            SourceFile::new("a.rs", text.to_owned()).lines_before_tests(),
            4
        );
    }

    #[test]
    fn test_files_are_known_by_their_path() {
        let is_test = |path| SourceFile::new(path, String::new()).is_test();
        assert!(is_test("base/x/tests/a.rs"));
        assert!(is_test("base/x/src/y/tests.rs"));
        assert!(!is_test("test/model/src/lib.rs"));
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("an unsafe block", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe"));
        assert!(!has_word("an_unsafe", "unsafe"));
    }
}
