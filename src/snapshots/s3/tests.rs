//! Signed addresses, and a bucket of the test's own that says what the test has it say.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;

use futures_util::future::LocalBoxFuture;

use super::*;
use crate::on_core::on_core;
use crate::options::s3::S3Access;
use crate::options::values::AllowedNetworks;
use crate::outgoing::{AddressPolicy, Names, SystemSockets};

fn options(url: &str) -> S3Options {
    S3Options {
        url: Url::parse(url).unwrap(),
        region: "us-east-1".into(),
        bucket: "b".into(),
        prefix: "p/q".into(),
        access: S3Access::Keys { access: "AK".into(), secret: "SK".into() },
        parts_in_flight_max: 2,
        compression_level: 0,
        signature_seconds: 60,
        part_bytes: 10,
    }
}

fn bucket(runtime: Rc<dyn Runtime>, options: S3Options) -> SnapshotBucket {
    let sockets = Rc::new(SystemSockets::new(runtime.clone(), Names::start().unwrap()));
    let client = Client::new(runtime.clone(), sockets, AddressPolicy::new(AllowedNetworks::Any));
    SnapshotBucket::new(runtime, client, options)
}

/// A service that gives these answers, one a connection; the lines that requests begin with are kept.
fn service(answers: &[String]) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (kept, mut answers) = (Arc::new(Mutex::new(Vec::new())), VecDeque::from(answers.to_vec()));
    let seen = kept.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut bytes, mut byte) = (stream.unwrap(), Vec::new(), [0]);
            while !bytes.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                bytes.push(byte[0]);
            }
            let head = String::from_utf8(bytes).unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            stream.read_exact(&mut body).unwrap();
            let line = head.lines().next().unwrap_or_default();
            seen.lock().unwrap().push(format!("{line}\n{}", String::from_utf8_lossy(&body)));
            let Some(answer) = answers.pop_front() else { return };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (address, kept)
}

fn answer(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn run(test: impl FnOnce(Rc<dyn Runtime>) -> LocalBoxFuture<'static, ()> + Send + 'static) {
    on_core(test);
}

#[test]
fn addresses_are_signed() {
    run(|runtime| {
        Box::pin(async move {
            let bucket = bucket(runtime, options("https://s3.us-east-1.amazonaws.com"));
            let call = Call {
                doing: "",
                method: Method::Put,
                key: "p/q/a b.snapshot",
                query: &[("partNumber", "1"), ("uploadId", "a/b=")],
                deadlines: SHORT,
                retries: 0,
            };
            let keys = Credentials::new_with_token("AK", "SK", "t/k+=");
            let address = bucket.address(&call, &keys, Duration::from_secs(1_369_353_600)).unwrap();
            assert_eq!(address.host_str(), Some("s3.us-east-1.amazonaws.com"));
            assert_eq!(address.path(), "/b/p/q/a%20b.snapshot");
            let value =
                |name: &str| address.query_pairs().find(|(known, _)| known == name).map(|(_, v)| v.into_owned());
            for (name, wanted) in [
                ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
                ("X-Amz-Credential", "AK/20130524/us-east-1/s3/aws4_request"),
                ("X-Amz-Date", "20130524T000000Z"),
                ("X-Amz-Expires", "60"),
                ("X-Amz-Security-Token", "t/k+="),
                ("X-Amz-SignedHeaders", "host"),
                ("partNumber", "1"),
                ("uploadId", "a/b="),
            ] {
                assert_eq!(value(name).as_deref(), Some(wanted), "{name}");
            }
            assert_eq!(value("X-Amz-Signature").map(|signature| signature.len()), Some(64));
        })
    });
}

#[test]
fn objects_are_named_after_prefix_and_file() {
    assert_eq!(object_key("a/b", "data.ms.snapshot"), "a/b/data.ms.snapshot");
    assert_eq!(object_key("", "data.ms.snapshot"), "data.ms.snapshot");
}

/// What may pass is asked again: a service that fails, and one that fails after it has said that it did not.
#[test]
fn what_may_pass_is_asked_again() {
    let slow = "<Error><Code>SlowDown</Code><Message>m</Message></Error>";
    let answers = [
        answer(503, "", slow),
        answer(200, "", "<R><UploadId>u</UploadId></R>"),
        answer(200, "", "  <Error><Code>InternalError</Code></Error>"),
        answer(200, "", "<CompleteMultipartUploadResult/>"),
        answer(404, "", "<Error><Code>NoSuchUpload</Code></Error>"),
    ];
    let (address, seen) = service(&answers);
    run(move |runtime| {
        Box::pin(async move {
            let bucket = bucket(runtime, options(&format!("http://{address}")));
            let upload = bucket.begin("f").await.unwrap();
            assert_eq!((upload.key.as_str(), upload.id.as_str()), ("p/q/f", "u"));
            bucket.complete(&upload, &["\"t\"".into()]).await.unwrap();
            assert!(bucket.abandon().await && bucket.open.borrow().is_none());
        })
    });
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 5);
    assert!(seen[1].starts_with("POST /b/p/q/f?") && seen[1].contains("uploads="), "{}", seen[1]);
    assert!(seen[3].contains("<PartNumber>1</PartNumber><ETag>&quot;t&quot;</ETag>"), "{}", seen[3]);
    assert!(seen[4].starts_with("DELETE /b/p/q/f?") && seen[4].contains("uploadId=u"), "{}", seen[4]);
}

#[test]
fn what_is_refused_is_told_at_once() {
    let denied = "<Error><Code>AccessDenied</Code><Message>not yours</Message></Error>";
    let (address, seen) =
        service(&[answer(403, "", denied), answer(307, "Location: /x\r\n", ""), answer(200, "", "nothing")]);
    run(move |runtime| {
        Box::pin(async move {
            let bucket = bucket(runtime, options(&format!("http://{address}")));
            let error = bucket.begin("f").await.unwrap_err();
            let text = "the service answered 403 while beginning the upload: `AccessDenied`: not yours";
            assert_eq!(error, S3Error::Refused(text.into()));
            assert!(matches!(bucket.begin("f").await, Err(S3Error::Refused(_))));
            assert!(matches!(bucket.begin("f").await, Err(S3Error::Failed(_))));
            bucket.stop().await;
            assert_eq!(bucket.unless_stopping(async {}).await, Err(S3Error::Stopping));
        })
    });
    assert_eq!(seen.lock().unwrap().len(), 3);
}

/// Keys of a token end; those that have ended before their time are asked for anew, once.
#[test]
fn a_token_gives_keys_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    #[allow(clippy::disallowed_methods)] // No executor runs here.
    std::fs::write(&token_file, "to+ken\n").unwrap();
    let keys = |name: &str| {
        format!(
            "<R><C><AccessKeyId>{name}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
             <SessionToken>t</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></C></R>"
        )
    };
    let ended = "<Error><Code>ExpiredToken</Code></Error>";
    let (service_address, asked) = service(&[answer(200, "", &keys("K1")), answer(200, "", &keys("K2"))]);
    let begun = "<R><UploadId>u</UploadId></R>";
    let (address, seen) = service(&[answer(200, "", begun), answer(400, "", ended), answer(200, "", begun)]);
    run(move |runtime| {
        Box::pin(async move {
            let access = S3Access::Role {
                arn: "arn:r".into(),
                token_file: token_file.clone(),
                seconds: 900,
                token_service: Url::parse(&format!("http://{service_address}")).unwrap(),
            };
            let mut options = options(&format!("http://{address}"));
            options.access = access;
            let bucket = bucket(runtime, options);
            bucket.begin("f").await.unwrap();
            bucket.begin("f").await.unwrap();
            bucket.keys.forget();
            std::fs::remove_file(&token_file).unwrap();
            assert!(matches!(bucket.begin("f").await, Err(S3Error::Parameters(_))));
        })
    });
    let asked = asked.lock().unwrap();
    let form = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Ar&RoleSessionName=skerry-snapshots\
                &WebIdentityToken=to%2Bken&DurationSeconds=900";
    assert_eq!(*asked, [format!("POST / HTTP/1.1\n{form}"), format!("POST / HTTP/1.1\n{form}")]);
    let names: Vec<bool> = seen.lock().unwrap().iter().map(|line| line.contains("X-Amz-Credential=K1")).collect();
    assert_eq!(names, [true, true, false]);
}

/// Parts are read while they are sent, and their tags come back in order whatever part ends first.
#[test]
fn a_file_is_sent_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    #[allow(clippy::disallowed_methods)] // No executor runs here.
    std::fs::write(&path, "0123456789abcdefghijKLM").unwrap();
    let tag = |name: &str| answer(200, &format!("ETag: {name}\r\n"), "");
    let (address, seen) = service(&[
        tag("1"),
        tag("2"),
        tag("3"),
        answer(200, "", "<CompleteMultipartUploadResult/>"),
        tag("4"),
        answer(200, "", ""),
    ]);
    run(move |runtime| {
        Box::pin(async move {
            let mut options = options(&format!("http://{address}"));
            options.parts_in_flight_max = 1;
            let bucket = bucket(runtime, options);
            let upload =
                Upload { bucket: bucket.bucket().unwrap().base_url().to_string(), key: "k".into(), id: "u".into() };
            bucket.send(&upload, &path).await.unwrap();
            let error = bucket.send(&upload, &path).await.unwrap_err();
            assert_eq!(error, S3Error::Failed("the answer had no `ETag` while sending part 2".into()));
        })
    });
    let seen = seen.lock().unwrap();
    let bodies: Vec<&str> =
        seen[..3].iter().filter_map(|request| request.split_once('\n')).map(|(_, body)| body).collect();
    assert_eq!(bodies, ["0123456789", "abcdefghij", "KLM"]);
    assert!(seen[2].contains("partNumber=3&uploadId=u&X-Amz-Signature="), "{}", seen[2]);
    let list =
        "<Part><PartNumber>1</PartNumber><ETag>1</ETag></Part><Part><PartNumber>2</PartNumber><ETag>2</ETag></Part>";
    assert!(seen[3].contains(list), "{}", seen[3]);
}
