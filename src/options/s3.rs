//! Where snapshots go when they leave the machine: a bucket of S3 or of a service that speaks like it.

use std::path::PathBuf;
use std::str::FromStr;

use super::layers::Env;
use super::values::ByteSize;
use super::{OptionsError, Values, env_number};
use crate::outgoing::Url;

const URL: &str = "s3-bucket-url";
const REGION: &str = "s3-bucket-region";
const BUCKET: &str = "s3-bucket-name";
const PREFIX: &str = "s3-snapshot-prefix";
const ACCESS_KEY: &str = "s3-access-key";
const SECRET_KEY: &str = "s3-secret-key";
const ROLE: &str = "experimental-s3-role-arn";
const TOKEN_FILE: &str = "experimental-s3-web-identity-token-file";
const PARTS_IN_FLIGHT: &str = "experimental-s3-max-in-flight-parts";
const COMPRESSION: &str = "experimental-s3-compression-level";
const SIGNATURE: &str = "experimental-s3-signature-duration-seconds";
const PART_SIZE: &str = "experimental-s3-multipart-part-size";

/// What must be there for a bucket, whatever opens it.
const PLACE: [&str; 4] = [URL, REGION, BUCKET, PREFIX];
/// What opens a bucket: the keys of somebody, or a role that a token gives. Each pair excludes the other.
const KEYS: [&str; 2] = [ACCESS_KEY, SECRET_KEY];
const FEDERATION: [&str; 2] = [ROLE, TOKEN_FILE];
/// What makes no sense without a bucket.
const MANNER: [&str; 4] = [PARTS_IN_FLIGHT, COMPRESSION, SIGNATURE, PART_SIZE];

/// The highest level of gzip.
const COMPRESSION_MAX: u32 = 9;
/// No signature in an address is valid for longer than a week.
const SIGNATURE_SECONDS_MAX: u64 = 7 * 24 * 3600;
/// The bounds of the size of a part.
const PART_BYTES: std::ops::RangeInclusive<u64> = 10 << 20..=8 << 30;

/// A bucket that takes the snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Options {
    /// The service, without the bucket.
    pub url: Url,
    /// Its region.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// What the names of snapshots begin with, without a slash at either end; empty for nothing.
    pub prefix: String,
    /// What opens the bucket.
    pub access: S3Access,
    /// Parts on their way at the same time, at least 1.
    pub parts_in_flight_max: usize,
    /// The level of gzip, 0 to 9.
    pub compression_level: u32,
    /// Seconds for which the signature of a request is valid.
    pub signature_seconds: u64,
    /// Bytes of a part.
    pub part_bytes: u64,
}

/// What opens a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum S3Access {
    /// Keys that stay.
    Keys {
        /// The name of the key.
        access: String,
        /// The key.
        secret: String,
    },
    /// A role, which is taken on with a token that somebody else puts into a file and renews there.
    Role {
        /// The role.
        arn: String,
        /// The file.
        token_file: PathBuf,
        /// How long the role is taken on for each time, in seconds.
        seconds: u64,
        /// The service that gives keys for the token.
        token_service: Url,
    },
}

impl Values {
    /// The bucket; `None` where none of its options is given. One that is given needs the others: who believes that snapshots are
    /// sent away must learn it at the start that they are not.
    pub(super) fn s3(&self, env: Env<'_>) -> Result<Option<S3Options>, OptionsError> {
        let all = [&PLACE[..], &KEYS, &FEDERATION, &MANNER].concat();
        let Some(reason) = all.into_iter().find(|name| self.is_given(name)) else { return Ok(None) };
        let needs = |name: &str| OptionsError::Usage(format!("`--{reason}` needs `--{name}`"));
        if let Some(missing) = PLACE.iter().find(|name| !self.is_given(name)) {
            return Err(needs(missing));
        }
        let url: Url = self.required::<ServiceUrl>(URL)?.0;
        let region = self.required::<String>(REGION)?;
        Ok(Some(S3Options {
            access: self.s3_access(env, reason, &region)?,
            url,
            bucket: self.required(BUCKET)?,
            prefix: self.s3_prefix()?,
            parts_in_flight_max: self.at_least_one::<u32>(PARTS_IN_FLIGHT)?.unwrap_or(1) as usize,
            compression_level: self.bounded(COMPRESSION, 0, u64::from(COMPRESSION_MAX))? as u32,
            signature_seconds: self.bounded(SIGNATURE, 1, SIGNATURE_SECONDS_MAX)?,
            part_bytes: self.part_bytes()?,
            region,
        }))
    }

    fn s3_access(&self, env: Env<'_>, reason: &str, region: &str) -> Result<S3Access, OptionsError> {
        let given = |names: [&'static str; 2]| names.into_iter().find(|name| self.is_given(name));
        let missing = |names: [&'static str; 2]| names.into_iter().find(|name| !self.is_given(name));
        match (given(KEYS), given(FEDERATION)) {
            (Some(key), Some(role)) => {
                Err(OptionsError::Usage(format!("`--{key}` and `--{role}` cannot be used together")))
            }
            (None, None) => Err(OptionsError::Usage(format!(
                "`--{reason}` needs `--{ACCESS_KEY}` and `--{SECRET_KEY}`, or `--{ROLE}` and `--{TOKEN_FILE}`"
            ))),
            (Some(key), None) => match missing(KEYS) {
                Some(other) => Err(OptionsError::Usage(format!("`--{key}` needs `--{other}`"))),
                None => Ok(S3Access::Keys { access: self.required(ACCESS_KEY)?, secret: self.required(SECRET_KEY)? }),
            },
            (None, Some(role)) => match missing(FEDERATION) {
                Some(other) => Err(OptionsError::Usage(format!("`--{role}` needs `--{other}`"))),
                None => Ok(S3Access::Role {
                    arn: self.required(ROLE)?,
                    token_file: self.required(TOKEN_FILE)?,
                    seconds: env_number(env, "EXPERIMENTAL_S3_WEB_IDENTITY_TOKEN_DURATION_SECONDS", 3600)?,
                    token_service: token_service(env, region)?,
                }),
            },
        }
    }

    /// Whether an option stands in a layer. A prefix may be empty where it is written down: then snapshots have none.
    fn is_given(&self, name: &str) -> bool {
        let given = self.layers.iter().find_map(|layer| layer.get(name));
        given.is_some_and(|text| name == PREFIX || !text.is_empty())
    }

    fn s3_prefix(&self) -> Result<String, OptionsError> {
        let prefix = self.text(PREFIX).unwrap_or_default().trim_matches('/');
        // In the path of a URL these are ways, not names.
        match prefix.split('/').any(|segment| matches!(segment, "." | "..")) {
            true => Err(invalid(PREFIX, "`.` and `..` are no names in a bucket")),
            false => Ok(prefix.to_owned()),
        }
    }

    fn bounded(&self, name: &str, least: u64, most: u64) -> Result<u64, OptionsError> {
        match self.required::<u64>(name)? {
            number if (least..=most).contains(&number) => Ok(number),
            _ => Err(invalid(name, &format!("it must be {least} to {most}"))),
        }
    }

    fn part_bytes(&self) -> Result<u64, OptionsError> {
        match self.required::<ByteSize>(PART_SIZE)?.0 {
            bytes if PART_BYTES.contains(&bytes) => Ok(bytes),
            _ => Err(invalid(PART_SIZE, "it must be 10 MiB to 8 GiB")),
        }
    }
}

fn invalid(name: &str, reason: &str) -> OptionsError {
    OptionsError::Usage(format!("invalid value for `--{name}`: {reason}"))
}

/// The service that gives keys for a token: the one that the environment names as it does for AWS's own tools, or that of the
/// region.
fn token_service(env: Env<'_>, region: &str) -> Result<Url, OptionsError> {
    const NAME: &str = "AWS_ENDPOINT_URL_STS";
    let named = env(NAME).filter(|text| !text.is_empty());
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    let (of, text) = match &named {
        Some(text) => (NAME.to_owned(), text.clone()),
        None => (format!("--{REGION}"), format!("https://sts.{region}.{domain}/")),
    };
    let url = text.parse::<ServiceUrl>();
    url.map(|url| url.0).map_err(|error| OptionsError::Usage(format!("invalid value for `{of}`: {error}")))
}

/// The URL of a service: one that can be called.
struct ServiceUrl(Url);

impl FromStr for ServiceUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        url.map(Self).ok_or_else(|| format!("`{text}` is no URL such as `https://s3.eu-west-1.amazonaws.com`"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, is_usage_error, resolve};
    use super::*;

    const PLACE: [(&str, &str); 4] = [
        ("--s3-bucket-url", "http://127.0.0.1:9000"),
        ("--s3-bucket-region", "eu-west-1"),
        ("--s3-bucket-name", "b"),
        ("--s3-snapshot-prefix", "/a/b/"),
    ];
    const KEYS: [(&str, &str); 2] = [("--s3-access-key", "AK"), ("--s3-secret-key", "SK")];
    const ROLE: [(&str, &str); 2] =
        [("--experimental-s3-role-arn", "arn"), ("--experimental-s3-web-identity-token-file", "/token")];

    fn words<'a>(pairs: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Vec<&'a str> {
        pairs.into_iter().flat_map(|(name, value)| [*name, *value]).collect()
    }

    fn s3(args: &[&str], env: &[(&str, &str)]) -> S3Options {
        resolve(args, env).unwrap().s3.expect("a bucket is given")
    }

    #[test]
    fn a_bucket_is_opened_by_keys_or_by_a_role() {
        assert_eq!(resolve(&[], &[]).unwrap().s3, None);
        let by_keys = s3(&words(PLACE.iter().chain(&KEYS)), &[]);
        assert_eq!((by_keys.url.as_str(), by_keys.prefix.as_str()), ("http://127.0.0.1:9000/", "a/b"));
        assert_eq!((by_keys.region.as_str(), by_keys.bucket.as_str()), ("eu-west-1", "b"));
        assert_eq!(by_keys.access, S3Access::Keys { access: "AK".into(), secret: "SK".into() });
        let manner = (by_keys.parts_in_flight_max, by_keys.compression_level, by_keys.signature_seconds);
        assert_eq!((manner, by_keys.part_bytes), ((10, 0, 28_800), 375 << 20));

        let role = words(PLACE.iter().chain(&ROLE));
        let of = |env: &[(&str, &str)]| match s3(&role, env).access {
            S3Access::Role { seconds, token_service, .. } => (seconds, token_service.to_string()),
            keys => panic!("{keys:?}"),
        };
        assert_eq!(of(&[]), (3600, "https://sts.eu-west-1.amazonaws.com/".into()));
        let env = [
            ("MEILI_EXPERIMENTAL_S3_WEB_IDENTITY_TOKEN_DURATION_SECONDS", "900"),
            ("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1/sts"),
        ];
        assert_eq!(of(&env), (900, "http://127.0.0.1:1/sts".into()));
    }

    #[test]
    fn none_of_a_buckets_options_stands_alone() {
        let all: Vec<_> = PLACE.iter().chain(&KEYS).chain(&ROLE).copied().collect();
        for alone in &all {
            assert!(is_usage_error(&words([alone])), "{alone:?}");
        }
        assert!(is_usage_error(&words(&all)) && is_usage_error(&words(&PLACE)) && is_usage_error(&words(&KEYS)));
        for opened_by in [KEYS, ROLE] {
            let whole: Vec<_> = PLACE.iter().chain(&opened_by).copied().collect();
            for missing in &whole {
                let rest = whole.iter().filter(|pair| *pair != missing);
                assert!(is_usage_error(&words(rest)), "without {missing:?}");
            }
        }
        for manner in [
            ("--experimental-s3-max-in-flight-parts", "2"),
            ("--experimental-s3-compression-level", "1"),
            ("--experimental-s3-signature-duration-seconds", "60"),
            ("--experimental-s3-multipart-part-size", "20 MiB"),
        ] {
            assert!(is_usage_error(&words([&manner])), "{manner:?}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        let with = |name: &str, value: &str| {
            let pairs: Vec<_> = PLACE.iter().chain(&KEYS).copied().filter(|(known, _)| *known != name).collect();
            let pair = (name, value);
            let args = words(pairs.iter().chain([&pair]));
            resolve(&args, &[]).map(|options| options.s3.unwrap())
        };
        for (name, good, bad) in [
            ("--experimental-s3-max-in-flight-parts", &["1", "99"][..], &["0", "x", ""][..]),
            ("--experimental-s3-compression-level", &["0", "9"], &["10", "x", ""]),
            ("--experimental-s3-signature-duration-seconds", &["1", "604800"], &["0", "604801", ""]),
            ("--experimental-s3-multipart-part-size", &["10MiB", "8589934592"], &["10485759", "9GiB", "", "x"]),
            ("--s3-bucket-url", &["https://s3.eu-west-1.amazonaws.com"], &["nope", "ftp://x", "http://", "", "h:9000"]),
            ("--s3-snapshot-prefix", &["", "/", "a b/ü"], &["..", "a/./b"]),
        ] {
            good.iter().for_each(|value| assert!(with(name, value).is_ok(), "{name} {value}"));
            bad.iter().for_each(|value| assert!(with(name, value).is_err(), "{name} {value}"));
        }
    }

    #[test]
    fn the_environment_and_the_file_name_a_bucket_too() {
        let env: Vec<(String, &str)> = PLACE
            .iter()
            .chain(&KEYS)
            .map(|(name, value)| (format!("MEILI_{}", name[2..].to_uppercase().replace('-', "_")), *value))
            .collect();
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(s3(&[], &env).bucket, "b");
        let empty: Vec<(&str, &str)> = env.iter().map(|(name, _)| (*name, "")).collect();
        assert_eq!(resolve(&[], &empty).unwrap().s3, None);

        let mut text: String = PLACE
            .iter()
            .chain(&KEYS)
            .map(|(name, value)| format!("{} = \"{value}\"\n", name[2..].replace('-', "_")))
            .collect();
        text.push_str("experimental_s3_multipart_part_size = 20971520\nexperimental_s3_compression_level = 3\n");
        let (_folder, path) = file(&text);
        let read = s3(&["--config-file-path", &path], &[]);
        assert_eq!((read.part_bytes, read.compression_level), (20 << 20, 3));
    }
}
