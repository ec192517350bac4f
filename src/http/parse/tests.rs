//! Framing by example, and the properties that hold for every input.

use proptest::prelude::*;

use super::*;

/// The head of a request as the connection finds it, fed in pieces of `piece` bytes.
fn read_head(input: &[u8], piece: usize) -> Result<Option<(ParsedHead, usize)>, ParseError> {
    let mut scanner = HeadScanner::default();
    let mut end = 0;
    while end < input.len() {
        end = (end + piece).min(input.len());
        if let Some(length) = scanner.find_end(&input[..end])? {
            return parse_head(&input[..length]).map(|head| Some((head, length)));
        }
    }
    Ok(None)
}

fn head(lines: &str) -> Result<ParsedHead, ParseError> {
    let text = format!("{}\r\n\r\n", lines.replace('\n', "\r\n"));
    read_head(text.as_bytes(), text.len()).map(|found| found.expect("the head is complete").0)
}

fn malformed(lines: &str) -> bool {
    matches!(head(lines), Err(ParseError::Malformed(_)))
}

#[test]
fn an_ordinary_request_is_read() {
    let parsed = head("POST //indexes/a%20b//search/?q=x&y=?z HTTP/1.1\nHost: h:7700\nContent-Length: 12").unwrap();
    assert_eq!(parsed.head.method, Method::Post);
    assert_eq!(parsed.head.path, "/indexes/a%20b/search");
    assert_eq!(parsed.head.query, "q=x&y=?z");
    assert_eq!(parsed.framing, Framing::Length(12));
    assert!(parsed.keep_alive && !parsed.expects_continue && !parsed.is_http_10);
}

#[test]
fn targets_have_three_forms() {
    let path = |target: &str| head(&format!("GET {target} HTTP/1.1\nHost: h")).map(|parsed| parsed.head.path);
    assert_eq!(path("/").unwrap(), "/");
    assert_eq!(path("//").unwrap(), "/");
    assert_eq!(path("http://other:80/health/").unwrap(), "/health");
    assert_eq!(path("HTTPS://other?q=1").unwrap(), "/");
    assert_eq!(head("OPTIONS * HTTP/1.1\nHost: h").unwrap().head.path, "*");
    for bad in ["*", "health", "ftp://h/x", "http:///x", "/a<b", "/a`b", "/a?q=\"x\"", "/a?q>1", "h:80"] {
        assert!(path(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_length_is_one_number() {
    let length = |value: &str| head(&format!("POST / HTTP/1.1\nHost: h\nContent-Length: {value}")).map(|p| p.framing);
    assert_eq!(length("0"), Ok(Framing::Length(0)));
    assert_eq!(length("007"), Ok(Framing::Length(7)));
    assert_eq!(length("18446744073709551615"), Ok(Framing::Length(u64::MAX)));
    for bad in ["", "+1", "-1", "1 1", "1,1", "1, 1", "0x10", "1.0", "18446744073709551616", "\u{661}"] {
        assert!(length(bad).is_err(), "{bad}");
    }
    assert!(malformed("POST / HTTP/1.1\nHost: h\nContent-Length: 5\nContent-Length: 5"));
    assert!(malformed("POST / HTTP/1.1\nHost: h\nContent-Length: 5\ncontent-length: 6"));
}

#[test]
fn chunked_excludes_a_length_and_other_codings() {
    let coding = |lines: &str| head(&format!("POST / HTTP/1.1\nHost: h\n{lines}")).map(|parsed| parsed.framing);
    assert_eq!(coding("Transfer-Encoding: Chunked"), Ok(Framing::Chunked));
    assert!(coding("Transfer-Encoding: chunked\nContent-Length: 5").is_err());
    assert!(coding("Content-Length: 5\nTransfer-Encoding: identity").is_err());
    assert!(coding("Transfer-Encoding: chunked\nTransfer-Encoding: chunked").is_err());
    for unknown in ["gzip, chunked", "chunked, chunked", "identity", "xchunked", "chunked;q=1", ""] {
        assert_eq!(
            coding(&format!("Transfer-Encoding: {unknown}")),
            Err(ParseError::UnknownTransferCoding),
            "{unknown}"
        );
    }
    assert!(malformed("POST / HTTP/1.0\nTransfer-Encoding: chunked"));
}

#[test]
fn header_lines_are_strict() {
    for bad in [
        "Name : value",
        " folded: x",
        "A: b\n folded",
        "A: b\n\tfolded",
        "No colon",
        ": empty",
        "A\u{0}: b",
        "A: b\u{0}",
    ] {
        assert!(malformed(&format!("GET / HTTP/1.1\nHost: h\n{bad}")), "{bad:?}");
    }
    for bad in
        ["GET  / HTTP/1.1", "GET /a b HTTP/1.1", "GET / HTTP/1.1 ", "GET /", "GET / http/1.1", "G\u{e9}T / HTTP/1.1"]
    {
        assert!(head(&format!("{bad}\nHost: h")).is_err(), "{bad:?}");
    }
    assert_eq!(head("GET / HTTP/2.0\nHost: h"), Err(ParseError::UnknownVersion));
    for text in
        ["GET / HTTP/1.1\nHost: h\n\n", "GET / HTTP/1.1\r\nHost: h\n\r\n", "\u{16}\u{3}\u{1}", " GET / HTTP/1.1\r\n"]
    {
        assert!(read_head(text.as_bytes(), 1).is_err(), "{text:?}");
    }
    let lone_return = b"GET / HTTP/1.1\r\nHost: h\r\nA: b\rc: d\r\n\r\n";
    assert!(read_head(lone_return, 1).is_err());
}

#[test]
fn there_is_one_host() {
    assert!(malformed("GET / HTTP/1.1"));
    assert!(malformed("GET / HTTP/1.1\nHost: a\nHost: a"));
    assert!(malformed("GET / HTTP/1.1\nHost: a b"));
    assert!(head("GET / HTTP/1.0").is_ok());
    assert!(head("GET / HTTP/1.1\nHost: [::1]:7700").is_ok());
}

#[test]
fn keep_alive_depends_on_version_and_connection() {
    let keeps = |lines: &str| head(lines).unwrap().keep_alive;
    assert!(keeps("GET / HTTP/1.1\nHost: h"));
    assert!(!keeps("GET / HTTP/1.1\nHost: h\nConnection: Upgrade, CLOSE"));
    assert!(!keeps("GET / HTTP/1.0"));
    assert!(keeps("GET / HTTP/1.0\nConnection: Keep-Alive"));
}

#[test]
fn only_one_expectation_is_known() {
    let expects =
        |lines: &str| head(&format!("POST / HTTP/1.1\nHost: h\n{lines}")).map(|parsed| parsed.expects_continue);
    assert_eq!(expects("Expect: 100-Continue\nContent-Length: 1"), Ok(true));
    assert_eq!(expects("Expect: 100-continue"), Ok(false));
    assert_eq!(expects("Expect: tea\nContent-Length: 1"), Err(ParseError::UnknownExpectation));
    let second = "Expect: 100-continue\nExpect: tea\nContent-Length: 1";
    assert_eq!(expects(second), Err(ParseError::UnknownExpectation));
    assert_eq!(expects("Expect: 100-continue\nExpect: 100-continue\nContent-Length: 1"), Ok(true));
}

#[test]
fn heads_are_bounded() {
    let long_target = format!("GET /{} HTTP/1.1\nHost: h", "a".repeat(TARGET_BYTES_MAX));
    assert_eq!(head(&long_target), Err(ParseError::TargetTooLong));
    let no_end = vec![b'A'; HEAD_BYTES_MAX];
    assert_eq!(read_head(&no_end, 1000), Err(ParseError::TargetTooLong));
    let large = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(HEAD_BYTES_MAX));
    assert_eq!(read_head(large.as_bytes(), 1000), Err(ParseError::HeadTooLarge));
    let many = |count: usize| format!("GET / HTTP/1.1\nHost: h{}", "\nA: b".repeat(count - 1));
    assert!(head(&many(HEADERS_MAX)).is_ok());
    assert_eq!(head(&many(HEADERS_MAX + 1)), Err(ParseError::HeadTooLarge));
}

/// A body fed in pieces, with what is left of the input after it.
fn read_body(framing: Framing, input: &[u8], piece: usize) -> Result<(Vec<u8>, bool, usize), ParseError> {
    let mut decoder = BodyDecoder::new(framing);
    let mut body = Vec::new();
    let mut consumed = 0;
    for part in input.chunks(piece) {
        let decoded = decoder.decode(part, |bytes| body.extend_from_slice(bytes))?;
        consumed += decoded.consumed;
        if decoded.done {
            break;
        }
        assert_eq!(decoded.consumed, part.len(), "an unfinished body takes all there is");
    }
    Ok((body, decoder.is_done(), consumed))
}

#[test]
fn chunks_are_joined_and_end_where_they_say() {
    let input = b"4;ext=\"1\"\r\nWiki\r\n00005\r\npedia\r\n0\r\nTrailer: x\r\n\r\nGET /";
    for piece in 1..input.len() {
        let (body, done, consumed) = read_body(Framing::Chunked, input, piece).unwrap();
        assert_eq!((body.as_slice(), done, consumed), (&b"Wikipedia"[..], true, input.len() - 5));
    }
}

#[test]
fn chunk_syntax_is_strict() {
    for bad in [
        "\r\n",
        "4\nWiki\r\n0\r\n\r\n",
        "4\r\nWiki\n0\r\n\r\n",
        "4\r\nWikix",
        "+4\r\nWiki\r\n",
        "-4\r\n",
        " 4\r\n",
        "4 \r\n",
        "0x4\r\n",
        "4 ;a\r\n",
        "1234567890abcdef\r\n",
        "g\r\n",
        "4;a\rb\r\n",
        "4;a\nb",
        "0\r\n folded\r\n\r\n",
        "0\r\nA\nB",
        "0\r\nno colon\r\n\r\n",
        "0\r\nA: b\r\nname\r\n\r\n",
        "0\r\n: no name\r\n\r\n",
        "0\r\nblank : x\r\n\r\n",
        "0\r\n\rx",
    ] {
        assert!(read_body(Framing::Chunked, bad.as_bytes(), 1).is_err(), "{bad:?}");
    }
    let long_extension = format!("4;{}\r\n", "a".repeat(CHUNK_LINE_BYTES_MAX + 1));
    assert!(read_body(Framing::Chunked, long_extension.as_bytes(), 100).is_err());
    let long_trailers = format!("0\r\n{}", "A: b\r\n".repeat(CHUNK_LINE_BYTES_MAX));
    assert!(read_body(Framing::Chunked, long_trailers.as_bytes(), 100).is_err());
}

#[test]
fn a_length_leaves_what_follows() {
    assert_eq!(read_body(Framing::Length(3), b"abcdef", 2), Ok((b"abc".to_vec(), true, 3)));
    assert!(read_body(Framing::Length(0), b"abcdef", 2).unwrap().1);
    assert_eq!(read_body(Framing::Length(9), b"abc", 2), Ok((b"abc".to_vec(), false, 3)));
}

/// Bytes that look enough like requests to reach deep into the parsers.
fn request_like() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("GET / HTTP/1.1".to_owned()),
        Just("Host: h".to_owned()),
        Just("\r\n".to_owned()),
        Just("\r\n\r\n".to_owned()),
        Just("\n".to_owned()),
        Just("Content-Length: 3".to_owned()),
        Just("Transfer-Encoding: chunked".to_owned()),
        Just("3\r\nabc\r\n".to_owned()),
        Just("0\r\n".to_owned()),
        Just("5;x=y\r\n".to_owned()),
        "[ -~]{0,8}",
        any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(word, 0..16).prop_map(|words| words.concat().into_bytes())
}

proptest! {
    /// How the network cuts a request must not change what it means; anything else would be a way to smuggle.
    #[test]
    fn heads_mean_the_same_however_they_are_cut(input in request_like(), piece in 1..20usize) {
        let whole = read_head(&input, input.len().max(1));
        let cut = read_head(&input, piece);
        match (&whole, &cut) {
            (Ok(Some(a)), Ok(Some(b))) => prop_assert_eq!(a, b),
            (Ok(None), Ok(None)) | (Err(_), Err(_)) => {}
            _ => prop_assert!(false, "{:?} against {:?}", whole, cut),
        }
    }

    #[test]
    fn bodies_mean_the_same_however_they_are_cut(input in request_like(), piece in 1..20usize, length in 0..40u64) {
        for framing in [Framing::Chunked, Framing::Length(length)] {
            let whole = read_body(framing, &input, input.len().max(1));
            prop_assert_eq!(whole, read_body(framing, &input, piece));
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(input in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_head(&input, 7);
        let mut with_end = input.clone();
        with_end.extend_from_slice(b"\r\n\r\n");
        let _ = parse_head(&with_end);
        let _ = read_body(Framing::Chunked, &input, 3);
    }

    /// What was framed as chunks comes out as it went in.
    #[test]
    fn chunks_round_trip(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..8), piece in 1..60usize) {
        let mut wire = Vec::new();
        for part in &pieces {
            wire.extend_from_slice(format!("{:X}\r\n", part.len()).as_bytes());
            wire.extend_from_slice(part);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        prop_assert_eq!(read_body(Framing::Chunked, &wire, piece), Ok((pieces.concat(), true, wire.len())));
    }
}
