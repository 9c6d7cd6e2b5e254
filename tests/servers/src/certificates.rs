use std::path::Path;

use crate::account::Account;
use crate::error::Result;
use crate::process::complete;
use crate::programs::find_openssl;

/// Everything the certificates need, so that the system's OpenSSL configuration, which
/// differs between distributions, has no say.
const CONFIGURATION: &str = "\
[req]
prompt = no
distinguished_name = authority_name

[authority_name]
CN = Mainstay test authority

[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash

[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1, IP:::1
";

/// Creates an authority, `ca.crt`, in `directory`, and a key and a certificate for
/// localhost, `server.key` and `server.crt`, in its subdirectory `data`.
pub(crate) fn create(account: Account, directory: &Path) -> Result<()> {
    let openssl = find_openssl()?;
    account.write(&directory.join("openssl.cnf"), CONFIGURATION)?;
    let run = |arguments: &str| {
        let mut command = account.command(&openssl, directory);
        command.args(arguments.split_whitespace());
        complete(command)
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    run(&format!(
        "req -x509 -config openssl.cnf -extensions authority -days 30 {key} \
         -keyout ca.key -out ca.crt"
    ))?;
    run(&format!(
        "req -new -config openssl.cnf -subj /CN=localhost {key} \
         -keyout data/server.key -out server.csr"
    ))?;
    run("x509 -req -in server.csr -CA ca.crt -CAkey ca.key -set_serial 1 -days 30 \
         -extfile openssl.cnf -extensions server -out data/server.crt")
}
