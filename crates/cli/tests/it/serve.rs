//! The HTTP server, over loopback with a model on the simulated driver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::models::{run, train, write_chat_model, write_model};
use crate::program::Place;

/// Time limit for each action of the server.
const SOON: Duration = Duration::from_secs(30);

/// A running server, which ends with the test.
struct Server {
    child: Child,
    port: u16,
    /// Standard output, which must stay open.
    out: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn start(place: &Place, further: &[&str]) -> Self {
        let mut command = place.program();
        command.args(["serve", "--model", "model", "--device", "sim", "--port", "0"]);
        command.args(further).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("serving") {
            line.clear();
            if out.read_line(&mut line).unwrap() == 0 {
                let mut errors = String::new();
                child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
                panic!("the server did not start: {errors}");
            }
        }
        let port = line.trim().rsplit(':').next().unwrap().parse().unwrap();
        Self { child, port, out }
    }

    /// Sends a request, whose head is the request line and further lines, and returns the
    /// connection.
    fn send(&self, head: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let length = body.len();
        let text =
            format!("{head}\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n");
        // The server may answer before it has read a body that is too long.
        let _ = stream.write_all(format!("{text}\r\n{body}").as_bytes());
        BufReader::new(stream)
    }

    fn post(&self, path: &str, body: &Value) -> (u16, String) {
        response(self.send(&posted(path), &body.to_string()))
    }

    fn get(&self, path: &str) -> (u16, String) {
        response(self.send(&format!("GET {path} HTTP/1.1"), ""))
    }

    /// Posts and parses an answer.
    fn answer(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.post(path, body);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Starts a long answer, and returns the connection after its first piece.
    fn begin(&self, body: &Value) -> BufReader<TcpStream> {
        let mut stream = self.send(&posted("/v1/completions"), &body.to_string());
        let mut line = String::new();
        while !line.starts_with("data: {") {
            line.clear();
            assert!(stream.read_line(&mut line).unwrap() > 0, "no piece");
        }
        stream
    }

    #[cfg(unix)]
    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = std::process::Command::new("kill").args([signal, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until the server ends. Returns the status and the rest of the output.
    #[cfg(unix)]
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The head of a POST of JSON.
fn posted(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\ncontent-type: application/json")
}

/// Reads status and body.
fn response(mut stream: BufReader<TcpStream>) -> (u16, String) {
    let mut status = String::new();
    stream.read_line(&mut status).unwrap();
    let code = status.split(' ').nth(1).unwrap_or_else(|| panic!("{status:?}")).parse().unwrap();
    let (mut line, mut chunked) = (String::new(), false);
    while line != "\r\n" {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0);
        chunked |= line.to_ascii_lowercase().starts_with("transfer-encoding: chunked");
    }
    (code, body(stream, chunked))
}

fn body(mut stream: BufReader<TcpStream>, chunked: bool) -> String {
    let mut bytes = Vec::new();
    if !chunked {
        // A server that refuses a body may reset the connection after its answer.
        let _ = stream.read_to_end(&mut bytes);
        return String::from_utf8(bytes).unwrap();
    }
    loop {
        let mut size = String::new();
        stream.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        stream.read_exact(&mut chunk).unwrap();
        if size == 0 {
            return String::from_utf8(bytes).unwrap();
        }
        bytes.extend(&chunk[..size]);
    }
}

/// The data of server-sent events.
fn data(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
}

fn text(answer: &Value) -> &str {
    let choice = &answer["choices"][0];
    choice["text"].as_str().or(choice["message"]["content"].as_str()).unwrap()
}

/// The text of `retrograph generate`.
fn generated(place: &Place, prompt: &str, further: &[&str]) -> String {
    let line = ["generate", "--device", "sim", "--quiet", "--max-tokens", "8", "--prompt", prompt];
    let drawn = ["--temperature", "0.02", "--seed", "3"];
    let out = run(place, &[&line[..], &drawn, further].concat()).good().out;
    out.strip_suffix('\n').unwrap().to_owned()
}

/// The same request for the server.
fn drawn(model: &str) -> Value {
    json!({ "model": model, "max_tokens": 8, "temperature": 0.02, "seed": 3 })
}

fn with(mut value: Value, further: Value) -> Value {
    let further = further.as_object().unwrap().clone();
    value.as_object_mut().unwrap().extend(further);
    value
}

#[test]
fn answers_equal_generate_with_and_without_an_adapter() {
    let place = Place::new();
    write_chat_model(&place, 256);
    let far = ["--lr", "0.5", "--warmup", "1", "--lora-targets", "all", "--steps", "20"];
    train(&place, &[&far[..], &["--adapter-out", "adapter"]].concat()).good();
    let server = Server::start(&place, &["--adapter", "tuned=adapter"]);
    let (_, models) = server.get("/v1/models");
    let models: Value = serde_json::from_str(&models).unwrap();
    let ids: Vec<_> = models["data"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, ["model", "tuned"]);
    let (status, one) = server.get("/v1/models/tuned");
    assert_eq!(
        (status, serde_json::from_str::<Value>(&one).unwrap()),
        (200, models["data"][1].clone())
    );
    for absent in ["/v1/models/other", "/v1/models/a/b"] {
        let (status, text) = server.get(absent);
        assert!(status == 404 && text.contains("model_not_found"), "{status} {text}");
    }

    let plain = generated(&place, "the cat", &["--model", "model"]);
    let tuned = generated(&place, "the cat", &["--model", "model", "--adapter", "adapter"]);
    assert_ne!(plain, tuned);
    let prompt = json!({ "prompt": "the cat" });
    for (name, expected) in [("tuned", &tuned), ("model", &plain), ("tuned", &tuned)] {
        let answer = server.answer("/v1/completions", &with(drawn(name), prompt.clone()));
        assert_eq!(text(&answer), expected, "{name}");
        assert_eq!(
            (&answer["model"], &answer["object"]),
            (&json!(name), &json!("text_completion"))
        );
    }
    let rendered = "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n";
    let expected = generated(&place, rendered, &["--model", "model"]);
    let messages = json!({ "messages": [{ "role": "user", "content": "the cat" }] });
    let chat = with(drawn("model"), messages);
    let answer = server.answer("/v1/chat/completions", &chat);
    assert_eq!(text(&answer), expected);
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    let (usage, reason) = (&answer["usage"], &answer["choices"][0]["finish_reason"]);
    let completion = usage["completion_tokens"].as_u64().unwrap();
    assert_eq!(*reason, if completion == 8 { "length" } else { "stop" });

    // The same text arrives in pieces.
    let options = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let (status, events) = server.post("/v1/chat/completions", &with(chat, options));
    assert_eq!(status, 200);
    let mut events = data(&events);
    assert_eq!(events.pop(), Some("[DONE]"));
    let events: Vec<Value> =
        events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let piece = |event: &Value| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned);
    assert_eq!(events.iter().filter_map(piece).collect::<String>(), expected);
    let [.., last, told] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(last["choices"][0]["finish_reason"], *reason);
    assert_eq!((&told["usage"], &told["choices"]), (usage, &json!([])));

    let (_, metrics) = server.get("/metrics");
    for line in [
        "retrograph_requests_total{path=\"/v1/completions\",status=\"200\"} 3",
        "retrograph_requests_waiting 0",
        "retrograph_first_token_seconds_count 5",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "`{line}` is not in: {metrics}");
    }
}

#[test]
fn requests_that_cannot_be_answered_are_refused_with_a_reason() {
    let place = Place::new();
    write_model(&place, 256);
    let server = Server::start(&place, &["--max-tokens", "9", "--max-body", "600"]);
    assert_eq!(server.get("/health"), (200, "{\"status\":\"ok\"}".to_owned()));
    let refused = |body: Value, status: u16, words: &[&str]| {
        let (found, text) = server.post("/v1/completions", &body);
        assert_eq!(found, status, "{text}");
        let error: Value = serde_json::from_str(&text).unwrap();
        let message = error["error"]["message"].as_str().unwrap();
        for word in words {
            assert!(message.contains(word), "`{word}` is not in: {message}");
        }
    };
    let prompt = |further: Value| with(json!({ "prompt": "a" }), further);
    refused(prompt(json!({ "model": "gpt" })), 404, &["`gpt`", "model"]);
    refused(prompt(json!({ "max_tokens": 10 })), 400, &["10", "limit of 9"]);
    refused(prompt(json!({ "temperature": -1 })), 400, &["temperature"]);
    refused(prompt(json!({ "n": 2 })), 400, &["n is 2"]);
    refused(json!({ "prompt": "" }), 400, &["no token"]);
    refused(json!({ "prompt": "a".repeat(32) }), 400, &["32 tokens"]);
    refused(json!({ "prompt": [1, 2, 999] }), 400, &["999", "256"]);
    refused(json!({ "prompt": ["a", "b"] }), 400, &["one prompt"]);
    refused(json!({ "prompt": 7 }), 400, &["prompt"]);
    refused(json!({}), 400, &["prompt"]);
    refused(json!({ "prompt": "a".repeat(700) }), 413, &["more than 600 bytes"]);
    refused(prompt(json!({ "temperature": "hot" })), 400, &["temperature: invalid type"]);
    let chat = json!({ "messages": [{ "role": "user", "content": "a" }] });
    let (status, text) = server.post("/v1/chat/completions", &chat);
    assert!(status == 400 && text.contains("no chat template"), "{status} {text}");
    assert_eq!(server.get("/v1/absent").0, 404);
    assert_eq!(server.get("/v1/completions").0, 405);
    let typed = |line: &str| {
        let head = format!("POST /v1/completions HTTP/1.1{line}");
        response(server.send(&head, "{\"prompt\": \"a\", \"max_tokens\": 1}")).0
    };
    assert_eq!(typed(""), 415);
    assert_eq!(typed("\r\ncontent-type: application/jsonp"), 415);
    assert_eq!(typed("\r\ncontent-type: Application/JSON ; charset=utf-8"), 200);
    // The server still answers.
    let answer = server.answer("/v1/completions", &prompt(json!({ "stop": "zzz" })));
    assert_eq!(answer["usage"]["completion_tokens"], 9);
    let twice = ["serve", "--model", "model", "--device", "sim", "--adapter", "model=a"];
    run(&place, &twice).bad(&["two models", "`model`"]);
    let twice = ["--adapter", "a=x", "--adapter", "a=y"];
    let serve = ["serve", "--model", "model", "--device", "sim"];
    run(&place, &[&serve[..], &twice].concat()).bad(&["`a`", "each --adapter NAME=DIR"]);
    let config = "{\"temperature\": -1}";
    std::fs::write(place.path("model/generation_config.json"), config).unwrap();
    let done = run(&place, &serve).bad(&["model/generation_config.json", "temperature is -1"]);
    assert!(!done.out.contains("device"), "{}", done.out);
}

#[test]
fn a_configured_key_is_required() {
    let place = Place::new();
    write_model(&place, 256);
    std::fs::write(place.path("key"), "secret-7\n").unwrap();
    let server = Server::start(&place, &["--api-key-file", "key"]);
    let models =
        |lines: &str| response(server.send(&format!("GET /v1/models HTTP/1.1{lines}"), "")).0;
    assert_eq!(models(""), 401);
    assert_eq!(models("\r\nauthorization: Bearer secret-8"), 401);
    assert_eq!(models("\r\nauthorization: secret-7"), 401);
    assert_eq!(models("\r\nauthorization: Bearer secret-7"), 200);
    assert_eq!(models("\r\nauthorization: bearer secret-7"), 200);
    assert_eq!((server.get("/health").0, server.get("/metrics").0), (200, 401));
    std::fs::write(place.path("key"), "\n").unwrap();
    let line = ["serve", "--model", "model", "--device", "sim", "--api-key-file", "key"];
    run(&place, &line).bad(&["the key", "one line"]);
}

/// Writes a model whose tokens are bytes, so that no token ends an answer.
fn write_endless_model(place: &Place) {
    write_chat_model(place, 9000);
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::remove_file(place.path("model").join(name)).unwrap();
    }
}

/// A request whose answer takes seconds on the simulator.
fn long() -> Value {
    json!({ "prompt": "a", "stream": true, "max_tokens": 8000, "temperature": 1, "seed": 1 })
}

#[test]
fn a_full_queue_refuses_and_a_client_that_leaves_frees_its_slot() {
    let place = Place::new();
    write_endless_model(&place);
    let server =
        Server::start(&place, &["--queue", "0", "--max-tokens", "8000", "--max-length", "9000"]);
    let short = json!({ "prompt": "a", "max_tokens": 1 });
    let first = server.begin(&long());
    let (status, text) = server.post("/v1/completions", &short);
    assert!(status == 503 && text.contains("server_busy"), "{status} {text}");
    drop(first);
    let started = Instant::now();
    while server.post("/v1/completions", &short).0 != 200 {
        assert!(started.elapsed() < SOON, "the slot is not free");
        std::thread::sleep(Duration::from_millis(20));
    }
    // The server also notices that a client without streaming disconnects.
    let whole = with(long(), json!({ "stream": false }));
    let silent = server.send(&posted("/v1/completions"), &whole.to_string());
    let started = Instant::now();
    // Another request would take the slot if it came first.
    while !server.get("/metrics").1.contains("retrograph_requests_running 1") {
        assert!(started.elapsed() < SOON, "the request has no slot");
    }
    assert_eq!(server.post("/v1/completions", &short).0, 503);
    drop(silent);
    while server.post("/v1/completions", &short).0 != 200 {
        assert!(started.elapsed() < SOON, "the slot is not free");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn concurrent_requests_have_the_same_answers_as_single_ones() {
    let place = Place::new();
    write_endless_model(&place);
    let far = ["--lr", "0.5", "--warmup", "1", "--lora-targets", "all", "--steps", "20"];
    train(&place, &[&far[..], &["--adapter-out", "adapter"]].concat()).good();
    let further = ["--batch", "3", "--queue", "0", "--max-tokens", "8000", "--max-length", "9000"];
    let server = Server::start(&place, &[&further[..], &["--adapter", "tuned=adapter"]].concat());
    let asked: Vec<_> = (0..3)
        .map(|seed| {
            let prompt = ["a", "of all", "the cat"][seed];
            let model = ["model", "tuned"][seed % 2];
            let drawn = json!({ "max_tokens": 40, "temperature": 1, "seed": seed });
            with(drawn, json!({ "model": model, "prompt": prompt }))
        })
        .collect();
    let answer = |asked: &Value| text(&server.answer("/v1/completions", asked)).to_owned();
    let alone: Vec<_> = asked.iter().map(answer).collect();
    assert_ne!(alone[0], alone[1]);
    std::thread::scope(|scope| {
        // A long answer runs concurrently with all of them.
        let first = server.begin(&long());
        let answers = asked[1..].iter().map(|asked| scope.spawn(|| answer(asked)));
        let answers: Vec<_> = answers.collect();
        let found: Vec<_> = answers.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(found, alone[1..]);
        assert!(server.get("/metrics").1.contains("retrograph_requests_running 1"));
        let others = [server.begin(&long()), server.begin(&long())];
        let (status, text) = server.post("/v1/completions", &asked[0]);
        let refused = status == 503 && text.contains("0 requests are already waiting");
        assert!(refused, "{status} {text}");
        drop((first, others));
        let started = Instant::now();
        while server.post("/v1/completions", &asked[0]).0 != 200 {
            assert!(started.elapsed() < SOON, "no slot is free");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(answer(&asked[0]), alone[0]);
    });
    let line = ["serve", "--model", "model", "--device", "sim", "--batch", "65"];
    let refused = run(&place, &line);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("--batch") && refused.err.contains("1..=64"), "{}", refused.err);
}

#[test]
fn twelve_clients_have_the_same_answers_as_single_ones() {
    let place = Place::new();
    write_endless_model(&place);
    let server = Server::start(&place, &["--batch", "12", "--queue", "0", "--max-length", "64"]);
    let asked: Vec<_> = (0..12)
        .map(|seed| {
            let drawn = json!({ "max_tokens": 4 + seed, "temperature": 1, "seed": seed });
            with(drawn, json!({ "prompt": "of all the cats".repeat(1 + seed % 2) }))
        })
        .collect();
    let answer = |asked: &Value| text(&server.answer("/v1/completions", asked)).to_owned();
    let alone: Vec<_> = asked.iter().map(answer).collect();
    assert_ne!(alone[0], alone[11]);
    std::thread::scope(|scope| {
        let answers: Vec<_> = asked.iter().map(|asked| scope.spawn(|| answer(asked))).collect();
        let found: Vec<_> = answers.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(found, alone);
    });
}

#[cfg(unix)]
#[test]
fn a_signal_lets_answers_end_and_refuses_new_connections() {
    let place = Place::new();
    write_endless_model(&place);
    let further = ["--max-tokens", "8000", "--max-length", "9000"];
    let server = Server::start(&place, &further);
    let stream = server.begin(&with(long(), json!({ "max_tokens": 300 })));
    server.signal("-TERM");
    let events = body(stream, false);
    assert!(events.contains("\"finish_reason\":\"length\""), "{events}");
    assert!(events.contains("[DONE]"), "{events}");
    let port = server.port;
    let (code, rest) = server.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.contains("all requests are answered"), "{rest}");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());

    // Without grace, the answer ends with an error.
    let server = Server::start(&place, &[&further[..], &["--grace", "0"]].concat());
    let stream = server.begin(&long());
    server.signal("-INT");
    let events = body(stream, false);
    assert!(events.contains("server_stopping") && !events.contains("[DONE]"), "{events}");
    let (code, rest) = server.end();
    assert_eq!(code, Some(0));
    assert!(rest.contains("requests without a complete answer: 1"), "{rest}");

    // A connection without a request does not delay the end.
    let server = Server::start(&place, &[&further[..], &["--grace", "0"]].concat());
    let _idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    assert_eq!(server.get("/health").0, 200);
    let started = Instant::now();
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

/// Each piece of an answer has the name of the model, so the answer exceeds the buffers of the
/// connection.
#[test]
fn a_client_that_reads_nothing_frees_its_slot_when_its_answer_ends() {
    let place = Place::new();
    write_endless_model(&place);
    let name = "m".repeat(40_000);
    let further = ["--queue", "0", "--max-length", "9000", "--name", &name];
    let server = Server::start(&place, &further);
    let _silent = server.begin(&with(long(), json!({ "max_tokens": 400 })));
    let short = json!({ "prompt": "a", "max_tokens": 1 });
    let started = Instant::now();
    while server.post("/v1/completions", &short).0 != 200 {
        assert!(started.elapsed() < SOON, "the slot is not free");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_chat_template_gets_all_fields_of_messages() {
    let place = Place::new();
    write_chat_model(&place, 256);
    let template = "{% for m in messages %}{{ m.name }}{{ m.content }}{% endfor %}";
    std::fs::write(place.path("model/chat_template.jinja"), template).unwrap();
    let server = Server::start(&place, &[]);
    let tokens = |message: Value| {
        let body = json!({ "messages": [with(message, json!({ "role": "user" }))] });
        let body = with(body, json!({ "max_tokens": 1 }));
        server.answer("/v1/chat/completions", &body)["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let named = tokens(json!({ "content": "xy", "name": "zq" }));
    assert!(named > tokens(json!({ "content": "xy" })));
    let body = json!({
        "messages": [{ "role": "user", "content": "a" }],
        "chat_template_kwargs": { "enable_thinking": false },
    });
    let (status, text) = server.post("/v1/chat/completions", &body);
    assert!(status == 400 && text.contains("chat_template_kwargs"), "{status} {text}");
}
