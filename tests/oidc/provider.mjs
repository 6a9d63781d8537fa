// A real authorization server for tests: oidc-provider on a free port, told by one line of JSON on stdin what it is.
// It answers with one line of JSON: its issuer, and the address where it is steered. It ends when stdin closes.

import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { randomBytes, X509Certificate } from 'node:crypto';
import { createInterface } from 'node:readline';

import { Provider, errors } from 'oidc-provider';
import { exportJWK, generateKeyPair } from 'jose';

const lines = createInterface({ input: process.stdin });
const told = JSON.parse((await lines[Symbol.asyncIterator]().next()).value);
process.stdin.on('close', () => process.exit(0));

const events = [];
const state = { down: false, hold: null, held: null };

async function freshKey() {
  const { privateKey } = await generateKeyPair('ES256', { extractable: true });
  return { ...(await exportJWK(privateKey)), use: 'sig', alg: 'ES256', kid: randomBytes(6).toString('hex') };
}

function settings(keys) {
  const ttl = { AccessToken: 300, ClientCredentials: 300, RefreshToken: 86400, AuthorizationCode: 60, Grant: 86400, Session: 86400, Interaction: 600, IdToken: 300, ...told.ttl };
  return {
    clients: told.clients ?? [],
    jwks: { keys },
    clientDefaults: { id_token_signed_response_alg: 'ES256' },
    ttl,
    scopes: ['openid', 'offline_access', 'profile', 'email', 'roles', ...(told.scopes ?? [])],
    claims: { openid: ['sub'], profile: ['name', 'preferred_username'], email: ['email'], roles: ['roles'] },
    conformIdTokenClaims: false,
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, name: sub, preferred_username: sub, email: `${sub}@example.com`, ...told.accounts?.[sub] }) }),
    extraTokenClaims: (_, token) => (token.accountId ? { roles: told.accounts?.[token.accountId]?.roles ?? [] } : undefined),
    clientAuthMethods: ['client_secret_basic', 'client_secret_post', 'private_key_jwt', 'none', ...(told.tls ? ['tls_client_auth', 'self_signed_tls_client_auth'] : [])],
    responseTypes: ['code'],
    pkce: { required: () => true },
    rotateRefreshToken: () => true,
    issueRefreshToken: (_, client) => client.grantTypeAllowed('refresh_token'),
    expiresWithSession: () => false,
    cookies: { keys: [randomBytes(16).toString('hex')] },
    features: {
      devInteractions: { enabled: true },
      clientCredentials: { enabled: true },
      introspection: { enabled: true },
      revocation: { enabled: true },
      registration: { enabled: told.registration ?? false },
      dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => told.dpop_nonce ?? false },
      mTLS: {
        enabled: told.tls !== undefined,
        certificateBoundAccessTokens: told.tls !== undefined,
        selfSignedTlsClientAuth: told.tls !== undefined,
        tlsClientAuth: told.tls !== undefined,
        getCertificate: (ctx) => peerCertificate(ctx.socket),
        certificateAuthorized: (ctx) => ctx.socket.authorized,
        certificateSubjectMatches: (ctx, property, expected) =>
          property === 'tls_client_auth_subject_dn' && peerCertificate(ctx.socket)?.subject.replaceAll('\n', ',') === expected,
      },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => told.default_resource,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => {
          const found = told.resources?.[resource];
          if (found === undefined) throw new errors.InvalidTarget();
          return { scope: found.scope ?? '', audience: found.audience ?? resource, accessTokenFormat: found.format ?? 'jwt', jwt: { sign: { alg: 'ES256' } } };
        },
      },
    },
  };
}

function peerCertificate(socket) {
  const raw = socket.getPeerCertificate?.()?.raw;
  return raw === undefined ? undefined : new X509Certificate(raw);
}

function build(keys) {
  const provider = new Provider(issuer, settings(keys));
  provider.use(async (ctx, next) => {
    await next();
    // its login page asks another host for a font
    if (typeof ctx.body === 'string') ctx.body = ctx.body.replace(/@import url\([^)]*\);/g, '');
  });
  // what it issues can be recognised wherever it is written
  for (const kind of ['AccessToken', 'ClientCredentials', 'RefreshToken']) {
    const issued = provider[kind].prototype;
    const { generateTokenId } = issued;
    issued.generateTokenId = function (...given) {
      return `${told.mark ?? ''}${generateTokenId.apply(this, given)}`;
    };
  }
  const note = (event) => (ctx, error) =>
    events.push({ event, client: ctx.oidc?.client?.clientId ?? null, grant: ctx.oidc?.params?.grant_type ?? null, error: error?.error ?? null, why: error?.error_detail ?? error?.message ?? null });
  provider.on('grant.success', note('grant.success'));
  provider.on('grant.error', note('grant.error'));
  provider.on('authorization.success', note('authorization.success'));
  provider.on('authorization.error', note('authorization.error'));
  provider.on('grant.revoked', note('grant.revoked'));
  provider.on('server_error', note('server_error'));
  return provider;
}

async function answer(request, response) {
  if (state.down) return void response.writeHead(503).end();
  if (state.hold !== null && request.url === '/token') {
    state.held.resolve();
    await state.hold.promise;
  }
  return handle(request, response);
}

const CONTROLS = {
  events: () => events.splice(0),
  // `old` keys are still published with 'keep', as in a rotation that gives clients time
  rotate: async ({ keep }) => {
    keys = [await freshKey(), ...(keep ? keys : [])];
    handle = build(keys).callback();
    return { kid: keys[0].kid };
  },
  down: ({ down }) => ({ down: (state.down = down) }),
  hold: () => {
    state.hold = Promise.withResolvers();
    state.held = Promise.withResolvers();
    return {};
  },
  held: async () => {
    await state.held.promise;
    return {};
  },
  release: () => {
    state.hold?.resolve();
    state.hold = null;
    return {};
  },
};

async function control(request, response) {
  let body = '';
  for await (const chunk of request) body += chunk;
  const found = CONTROLS[request.url.slice(1)];
  const result = found === undefined ? null : await found(body ? JSON.parse(body) : {});
  response.writeHead(found === undefined ? 404 : 200, { 'content-type': 'application/json' }).end(JSON.stringify(result));
}

async function listening(server, port = 0) {
  await new Promise((resolve, reject) => server.once('error', reject).listen(port, '127.0.0.1', resolve));
  return server.address().port;
}

const server = told.tls
  ? createSecureServer({ key: told.tls.key, cert: told.tls.cert, ca: told.tls.ca, requestCert: true, rejectUnauthorized: false }, answer)
  : createServer(answer);
const issuer = `${told.tls ? 'https' : 'http'}://localhost:${await listening(server, told.port)}`;
let keys = told.jwks ?? [await freshKey()];
let handle = build(keys).callback();
const steering = await listening(createServer(control));
process.stdout.write(`${JSON.stringify({ issuer, control: `http://127.0.0.1:${steering}` })}\n`);
