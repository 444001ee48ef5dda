// Runs a declarative Jenkinsfile with Groovy alone: jenkins.groovy JENKINSFILE FOLDER...
// Each FOLDER is a workspace with environment.json; a line of JSON for each says what happened.
// Jenkins' own validation, sandbox and plugins are not here.
import groovy.json.JsonOutput
import groovy.json.JsonSlurper
import org.codehaus.groovy.control.CompilerConfiguration

class Failed extends RuntimeException {
    Failed(String said) { super(said) }
}

abstract class Pipeline extends Script {
    File workspace
    Map variables
    Map seen = [result: 'SUCCESS', stages: [], said: [], timeouts: [], agent: [:], junit: null]
    private Closure steps
    private Closure after
    private boolean skipping

    // A script's properties would become variables of the Jenkinsfile.
    Map outcome(File workspace, Map variables) {
        this.workspace = workspace
        this.variables = variables
        binding = new Binding()
        run()
        return seen
    }

    void pipeline(Closure body) { body() }
    void agent(Closure body) { body() }
    void docker(Closure body) { body() }
    void label(String text) { seen.agent.label = text }
    void image(String text) { seen.agent.image = text }
    void args(String text) { seen.agent.args = text }
    void options(Closure body) { body() }
    void skipStagesAfterUnstable() { skipping = true }
    void timeout(Map limit) { seen.timeouts << limit }
    void environment(Closure body) { body() }
    void stages(Closure body) { body() }
    void steps(Closure body) { steps = body }
    void post(Closure body) { after = body }
    void always(Closure body) { body() }
    void script(Closure body) { body() }

    void stage(String name, Closure body) {
        if (seen.result == 'FAILURE' || (skipping && seen.result == 'UNSTABLE')) { return }
        seen.stages << name
        steps = after = null
        body()
        try {
            steps()
        } catch (Failed failed) {
            worsen('FAILURE', failed.message)
        }
        try {
            if (after != null) { after() }
        } catch (Failed failed) {
            worsen('FAILURE', failed.message)
        }
    }

    int sh(Map call) {
        File text = new File(workspace, '../script')
        text.text = call.script
        ProcessBuilder builder = new ProcessBuilder('sh', '-xe', text.path)
        builder.directory(workspace).redirectErrorStream(true)
        builder.environment().putAll(variables)
        // What `environment` sets are plain assignments; Jenkins unsets what is empty.
        binding.variables.findAll { it.key.startsWith('PREFLIGHT') && it.value }.each {
            builder.environment()[it.key] = it.value
        }
        Process process = builder.start()
        process.inputStream.text
        int code = process.waitFor()
        if (!call.returnStatus && code != 0) { throw new Failed("script returned ${code}") }
        return code
    }

    void echo(String text) { seen.said << text }
    void error(String text) { throw new Failed(text) }
    void unstable(String text) { worsen('UNSTABLE', text) }
    void archiveArtifacts(Map what) { seen.archive = what.artifacts }

    void junit(Map what) {
        seen.junit = what
        if (!new File(workspace, what.testResults).exists() && !what.allowEmptyResults) {
            throw new Failed('No test report files were found. Configuration error?')
        }
    }

    private void worsen(String result, String text) {
        seen.said << text
        if (seen.result != 'FAILURE') { seen.result = result }
    }
}

CompilerConfiguration configuration = new CompilerConfiguration(scriptBaseClass: Pipeline.name)
GroovyShell shell = new GroovyShell(getClass().classLoader, new Binding(), configuration)
for (String folder in args.drop(1)) {
    Pipeline pipeline = (Pipeline) shell.parse(new File(args[0]))
    Map variables = (Map) new JsonSlurper().parse(new File(folder, 'environment.json'))
    println JsonOutput.toJson(pipeline.outcome(new File(folder, 'job'), variables))
}
