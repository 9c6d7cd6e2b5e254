"""A receiver of webhooks: python3 receiver.py PORT, with the secret in WEBHOOK_SECRET."""
import base64, hashlib, hmac, http.server, os, sys, time

KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))


def is_genuine(headers, body):
    id, sent_at = headers["webhook-id"], headers["webhook-timestamp"]
    if abs(time.time() - int(sent_at)) > 300:  # an old one, sent again by somebody else
        return False
    signature = base64.b64encode(hmac.digest(KEY, f"{id}.{sent_at}.".encode() + body, hashlib.sha256)).decode()
    return any(hmac.compare_digest("v1," + signature, one) for one in headers["webhook-signature"].split())


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        genuine = is_genuine(self.headers, body)
        if genuine:  # remember the id with what you do: a message may come again
            print(self.headers["webhook-id"], self.headers["mainstay-topic"], body.decode(), flush=True)
        self.send_response(204 if genuine else 401)
        self.end_headers()


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
