import { describeStore } from '../support/rag/conformance.ts'
import { openServer } from '../support/rag/servers.ts'
import { openEngine } from '../support/rag/stores.ts'
import { openThroughHost } from '../support/rag/through-host.ts'

describeStore('the engine', openEngine)
describeStore('the server, by TLS', openServer)
describeStore('the server, through its host', openThroughHost)
