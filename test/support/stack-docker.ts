// Import it before modules that read the engine's address from the environment, as jest's setup sets it for tests.
import { facts } from './stack.ts'

process.env['KEELSON_DOCKER_HOST'] = facts().docker_host
