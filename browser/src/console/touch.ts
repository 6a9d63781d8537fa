/** The browser's part of touching a security key (WebAuthn), with JSON in and out. */
import type { JsonObject } from "./types";

type Parsers = {
  parseRequestOptionsFromJSON(options: JsonObject): PublicKeyCredentialRequestOptions;
  parseCreationOptionsFromJSON(options: JsonObject): PublicKeyCredentialCreationOptions;
};

/** The assertion of a touched key for `options`. */
export async function touch(options: JsonObject): Promise<JsonObject> {
  const publicKey = parsers().parseRequestOptionsFromJSON(options);
  return toJson(await requireCredential(navigator.credentials.get({ publicKey })));
}

/** The attestation of a new key. */
export async function create(options: JsonObject): Promise<JsonObject> {
  const publicKey = parsers().parseCreationOptionsFromJSON(options);
  return toJson(await requireCredential(navigator.credentials.create({ publicKey })));
}

function parsers(): Parsers {
  const found = globalThis.PublicKeyCredential as unknown as Partial<Parsers> | undefined;
  if (found?.parseRequestOptionsFromJSON && found.parseCreationOptionsFromJSON) return found as Parsers;
  throw new Error("This browser can not use security keys here. A newer one can.");
}

async function requireCredential(answer: Promise<Credential | null>): Promise<Credential> {
  const credential = await answer.catch((cause: unknown) => {
    throw new Error("No key was touched.", { cause });
  });
  if (!credential) throw new Error("No key was touched.");
  return credential;
}

function toJson(credential: Credential): JsonObject {
  return (credential as unknown as { toJSON(): JsonObject }).toJSON();
}
