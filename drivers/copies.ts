import type { Duplex } from 'node:stream'

// What copies of databases need of a deploy server's machine. See swarms.ts for how machines are named and reached.

/** Names the container in which a script runs: the running one with this label. */
export interface LabelledContainer {
  machine_id: string
  label: { name: string; value: string }
}

export interface ScriptEnd {
  exit_code: number
  /** What it wrote to its standard error, as far as it is kept: the last 4 MiB. */
  errors: string
  /** The size of its output before the machine compressed it. Null: it did not. */
  output_bytes: number | null
}

export interface ScriptOutput extends Pick<ScriptEnd, 'exit_code' | 'errors'> {
  output: string
}

/** A script that runs. */
export interface RunningScript {
  /** Its input and output. Ending it closes the input. */
  stream: Duplex
  /** Call when the output has ended. Throws EngineUnavailable if the script has not. */
  ended: () => Promise<ScriptEnd>
}

/** Scripts for /bin/sh in containers of machines. */
export interface ContainerScripts {
  /**
   * `mark` names the run in the script's environment. With `zstd` the machine compresses the output, or decompresses the input.
   * Throws InstanceNotRunning.
   */
  open(
    container: LabelledContainer,
    script: string,
    mark: string,
    options?: { zstd: 'input' | 'output' | null },
  ): Promise<RunningScript>
  /**
   * Runs a script that needs no input and says little: the machine keeps that in its memory until the script ends. Throws as
   * open.
   */
  read(container: LabelledContainer, script: string, mark: string): Promise<ScriptOutput>
  /** Ends the run with this mark, if it still runs. */
  end(container: LabelledContainer, mark: string): Promise<void>
}

/** An engine that is no service: it is in no network and is gone when its work is done. */
export interface ScratchEngine {
  id: string
  image: string
  env: Record<string, string>
  command: string[]
  cpu_cores: number
  memory_mib: number
  data_path: string
  /** Emptied at the start. Null: one that is removed with the engine. */
  volume: { name: string; labels: Record<string, string> } | null
}

/** All calls are idempotent. They throw as ContainerScripts. */
export interface ScratchEngines {
  /** Starts it anew, with an empty volume. */
  start(machineId: string, engine: ScratchEngine): Promise<void>
  /** Ends it as its image says, within the grace period. */
  stop(machineId: string, id: string, graceSec: number): Promise<void>
  /** Removes it, also while it runs. A volume with a name stays. */
  remove(machineId: string, id: string): Promise<void>
  /** How it has ended, with the last that it wrote; null: it runs, or is not there. */
  endOf(machineId: string, id: string): Promise<{ exit_code: number; output: string } | null>
  containerOf(machineId: string, id: string): LabelledContainer
}

/** How many bytes are free on the disk of a machine's engine. */
export type FreeBytes = (machineId: string) => Promise<number>
