import { accepts, begin, type By } from '../acceptance.ts'
import { endDeployCredentials } from '../identity/deploy-credentials.ts'
import type { Accepted } from '../operations.ts'
import { type DeployServerDocument, deployServerResource } from './deploy-servers.ts'
import { acceptDeployServerUpdate } from './deploy-server-update.ts'
import { acceptMachineReplacement } from './machine-replacement.ts'

/** From the next request on, the deploy server's own credentials are refused. Throws as `begin`. */
const acceptDeployServerDeletion = (by: By, id: string): Promise<Accepted<DeployServerDocument>> =>
  begin(by, deployServerResource, id, 'delete', { reserve: endDeployCredentials })

accepts(deployServerResource, {
  // Idempotent creation is the API's: an operation that makes a deploy server wants one of its own.
  verbs: {
    update: acceptDeployServerUpdate,
    replace: acceptMachineReplacement,
    delete: acceptDeployServerDeletion,
  },
})
