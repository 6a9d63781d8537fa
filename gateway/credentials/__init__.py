"""Auth flows as generators: `response = yield request`; whoever drives one does the I/O."""

from gateway.credentials.answers import Flow as Flow
from gateway.credentials.client_credentials import client_credentials as client_credentials
from gateway.credentials.nouns import ClientCredentials as ClientCredentials
from gateway.credentials.nouns import Network as Network
from gateway.credentials.nouns import Token as Token
